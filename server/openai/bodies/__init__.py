"""What clients of the OpenAI API may send, and how it is read."""
