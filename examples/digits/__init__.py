"""A small CNN that reads handwritten digits, in a weak and a better version."""
