"""What a checkpoint says of itself in JSON; no torch."""
