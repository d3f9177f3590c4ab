"""What is wrong now in the whole yard, and what an operator has acknowledged of it."""
