"""Drift: distributions of what models get and answer, held against a reference."""
