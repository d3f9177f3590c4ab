"""Runtimes behind one seam: one file each."""
