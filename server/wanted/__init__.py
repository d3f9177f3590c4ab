"""What the control process wants of this gateway: received, kept on disk, made one with folders."""
