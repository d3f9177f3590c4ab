"""Offline jobs. Empty until they land."""
