"""What a device does for the decoder; torch does it everywhere, kernels do it faster."""
