"""Offline jobs: rows, their life, what they are asked to do and what they report."""
