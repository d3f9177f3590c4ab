"""Shared memory of clients: what they registered, opened with care."""
