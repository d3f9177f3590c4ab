"""Traced requests: which ones, what is noted of them, and the files or spans made of it."""
