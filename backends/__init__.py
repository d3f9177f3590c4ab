"""Runtimes behind one seam: one file each."""

import os

# ONNX Runtime's Linux builds since 1.29 keep a device's id below the home folder and send sessions,
# with the names of models, to Microsoft, unless this is set before the library is loaded. Workers
# and checkers inherit it.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
