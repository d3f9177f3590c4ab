"""Runtimes for networks in other formats than ONNX and torch's: OpenVINO, LiteRT, ncnn, MNN."""

import sys

# Importing openvino runs its vendor's telemetry, which writes an id of this machine below $HOME,
# and fails where a sandbox hides that; without the package openvino takes an empty stand-in.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
