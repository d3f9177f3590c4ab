"""Simpler graphs by onnxslim, and weights in half of the bytes."""
