"""The backend `onnxruntime`."""
