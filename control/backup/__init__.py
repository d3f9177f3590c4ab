"""Backups of a whole server, and servers made from them."""
