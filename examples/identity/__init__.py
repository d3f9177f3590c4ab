"""The built-in identity backend."""
