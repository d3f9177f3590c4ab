"""Every setting, what may be written for it, and where it is read from."""
