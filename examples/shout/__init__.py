"""A python model with string tensors."""
