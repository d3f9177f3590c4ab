"""Quantisation to int8 by onnxruntime, judged on rows that it has not seen."""
