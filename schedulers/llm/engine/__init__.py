"""The engine's side of a language model: its process, its loop, its steps."""
