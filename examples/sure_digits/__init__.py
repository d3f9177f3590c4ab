"""The example sure_digits: a cheap model first, a dear one only where it is unsure."""
