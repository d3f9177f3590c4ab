"""Prune: remove channels or weights, train what is left, and write the result as ONNX."""
