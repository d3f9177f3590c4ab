"""Boxes: what a detection model says to what is where in the picture."""
