"""The compiled kernels as Python functions: tensors in, tensors out, shapes taken from them.

Rows are bfloat16 and contiguous unless a docstring says otherwise.
"""

import ctypes
from functools import cache

import torch
from torch import Tensor

from backends.llm.kernels.compile import compiled_library

_P, _I, _F = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
_SIGNATURES = {
    "linear_bf16": [_P] * 4 + [_I] * 4,
    "quantise_rows": [_P] * 4 + [_I] * 4,
    "linear_int8": [_P] * 7 + [_I] * 4,
    "linear_int4": [_P] * 7 + [_I] * 4,
    "add_norm": [_P, _P, _F, _P, _P, _I, _I, _F],
    "norm": [_P, _I, _P, _P, _I, _I, _I, _F],
    "gate": [_P, _P, _I, _I, _I],
    "store_kv": [_P] * 5 + [_I] + [_P] * 2 + [_F] + [_P] * 2 + [_I] * 5,
    "attend": [_P] * 6 + [_I] * 7 + [_F] * 2,
    "sample_rows": [_P] * 3 + [_I] * 2,
    "pack_bf16": [_P, _I, _P] + [_I] * 3,
    "pack_int8": [_P, _I, _P, _P] + [_I] * 3,
    "pack_int4": [_P, _I, _P, _P] + [_I] * 3,
    "place_int8": [_P, _P] + [_I] * 3,
    "place_int4": [_P] * 4 + [_I] * 3,
}


@cache
def kernels() -> ctypes.CDLL:
    """The loaded library. Raises NoKernels."""
    library = ctypes.CDLL(str(compiled_library()))
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = None
    return library


def at(tensor: Tensor | None) -> int | None:
    """Where a tensor's numbers are; None for none."""
    return None if tensor is None else tensor.data_ptr()


def new_rows(count: int, width: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(count, width, dtype=dtype)
