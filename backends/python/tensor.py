"""The tensors of python models: named arrays, and their way in and out by DLPack."""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from backends.python.model_errors import TritonModelException
from repository.config.tensors import BY_DTYPE, Array

_DLPACK_CPU = (1, 0)
_OBJECT = np.dtype(np.object_)


class Tensor:
    """A named array. BYTES tensors are object arrays of `bytes` (or `str`, sent as UTF-8)."""

    def __init__(self, name: str, numpy_array: Array) -> None:
        """Raises `TritonModelException` for a dtype the protocol does not have."""
        if not isinstance(numpy_array, np.ndarray):
            raise TritonModelException(
                f"Tensor '{name}' needs a numpy array, not {type(numpy_array).__name__}"
            )
        dtype = numpy_array.dtype
        if not (dtype in BY_DTYPE or dtype.kind == "S" or dtype.newbyteorder("=") in BY_DTYPE):
            raise TritonModelException(
                f"Tensor dtype '{dtype}' used for numpy_array of '{name}' is not supported. "
                "Use np.object_ for strings."
            )
        self._name = name
        self._array = numpy_array

    def name(self) -> str:
        """The tensor's name."""
        return self._name

    def as_numpy(self) -> Array:
        """The array itself, not a copy."""
        return self._array

    def shape(self) -> list[int]:
        """The array's shape."""
        return list(self._array.shape)

    def triton_dtype(self) -> int:
        """The data type's number in the config's `DataType`."""
        return numpy_to_triton_type(self._array.dtype)

    def is_cpu(self) -> bool:
        """Always true: tensors reach python models in main memory."""
        return True

    def to_dlpack(self) -> Any:
        """A DLPack capsule that shares the array's memory; not for BYTES."""
        return self.__dlpack__()

    @staticmethod
    def from_dlpack(name: str, tensor: Any) -> "Tensor":
        """A tensor from a DLPack capsule, or from anything with `__dlpack__`; what lies on a
        GPU, or is BF16, comes by way of torch."""
        source: Any = tensor if hasattr(tensor, "__dlpack__") else _Capsule(tensor)
        if hasattr(source, "detach") and (source.is_cuda or "bfloat16" in str(source.dtype)):
            return Tensor(name, _from_torch(source))
        try:
            return Tensor(name, np.from_dlpack(source))
        except (BufferError, RuntimeError, TypeError) as error:
            raise TritonModelException(f"Tensor '{name}' from DLPack: {error}") from error

    def __dlpack__(self, **wishes: Any) -> Any:
        if self._array.dtype.hasobject:
            raise TritonModelException(f"DLPack has no BYTES; '{self._name}' cannot be exported")
        if self._array.dtype == ml_dtypes.bfloat16:
            import torch

            bits = torch.from_numpy(self._array.view(np.int16))
            return bits.view(torch.bfloat16).__dlpack__()
        return self._array.__dlpack__(**wishes)

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DLPACK_CPU


class _Capsule:
    """A bare DLPack capsule, dressed as numpy wants to meet one."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_wishes: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DLPACK_CPU


def numpy_to_triton_type(data_type: Any) -> int:
    """The number of a numpy type's data type. Raises `KeyError` when the protocol has none."""
    dtype = np.dtype(data_type)
    return BY_DTYPE[np.dtype(np.object_) if dtype.kind == "S" else dtype.newbyteorder("=")].config


def protocol_array(array: Array) -> Array:
    """The array in the machine's byte order; strings as `bytes` objects."""
    if array.dtype.kind == "S":
        array = array.astype(_OBJECT)
    if array.dtype == _OBJECT:
        return _as_bytes(array)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _as_bytes(array: Array) -> Array:
    flat: Sequence[Any] = array.ravel().tolist()
    if all(type(element) is bytes for element in flat):
        return array
    converted = np.empty(len(flat), _OBJECT)
    converted[:] = [
        bytes(element) if isinstance(element, bytes) else str(element).encode() for element in flat
    ]
    return converted.reshape(array.shape)


def _from_torch(tensor: Any) -> Array:
    import torch

    on_cpu = tensor.detach().cpu().contiguous()
    if on_cpu.dtype == torch.bfloat16:
        array: Array = on_cpu.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return array
    plain: Array = on_cpu.numpy()
    return plain
