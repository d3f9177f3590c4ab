"""Immutable model folders, each named by the digest of what is in it."""
