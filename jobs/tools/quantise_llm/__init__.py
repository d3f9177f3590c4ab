"""Quantise a language model: its weights in 8 or 4 bits, as a checkpoint that the engine serves."""
