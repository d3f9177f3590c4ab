"""Charts of what was served: their range, what is drawn, the changes beside it."""
