"""The control API under /api/v1: who asks, what they may do, and the table of what can be done."""
