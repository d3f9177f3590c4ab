"""The desired state of this gateway: received, kept on disk, made one with folders."""
