"""Distil: train a smaller network to answer as a version does, and write it as ONNX."""
