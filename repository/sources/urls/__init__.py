"""URLs of sources: which are taken, what they name, and which addresses are public."""
