"""Public names and their arms: who answers a request, what became of it, and copies of it."""
