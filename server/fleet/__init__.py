"""Which versions are loaded: decided, checked, built, warmed, swapped and drained."""
