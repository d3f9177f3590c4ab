"""Decisions about jobs, from plain data and `now`."""
