"""Confine a process of ours: which files, sockets and system calls it may use (Linux)."""
