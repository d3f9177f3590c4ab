"""What an engine computes next, and in which blocks: no clock, no loop, no torch."""
