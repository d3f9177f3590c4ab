"""Model folders: read, watched, and made a snapshot of."""
