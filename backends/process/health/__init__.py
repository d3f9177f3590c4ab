"""Whether a worker lives: its heartbeat, its memory, its deaths, and what its model says."""
