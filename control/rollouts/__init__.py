"""How a new version takes a name's traffic over, step by step, and gives it back."""
