"""Where the Triton kernels are tested: on a GPU if there is one, else by Triton's interpreter.

Import this before anything that imports Triton, which looks for the interpreter's setting then.
"""

import os

import pytest
import torch

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda:0" if ON_GPU else "cpu")
needs_gpu = pytest.mark.skipif(not ON_GPU, reason="torch sees no CUDA device")

if not ON_GPU:
    os.environ["TRITON_INTERPRET"] = "1"
