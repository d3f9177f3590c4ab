"""One CNN in the format of every runtime, side by side as versions of one name."""
