"""Runtimes for networks in other formats than ONNX and torch's: OpenVINO, LiteRT, ncnn, MNN."""
