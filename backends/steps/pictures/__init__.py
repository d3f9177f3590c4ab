"""Pictures: the bytes of a file to the numbers that a model takes."""
