"""ONNX networks as files, as sessions of onnxruntime, and as drawings."""
