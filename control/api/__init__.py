"""The control API under /api/v1: its table of operations, and the HTTP around it."""
