"""The part of the CUDA driver that shared memory needs, called through ctypes.

The driver (`libcuda`) comes with every GPU's kernel module, whatever toolkit a model brings along;
its IPC handles are the runtime's. Nothing here needs torch, and nothing is loaded until asked for.
"""

import ctypes
from typing import NamedTuple

LIBRARY = "libcuda.so.1"
HANDLE_BYTES = 64
"""Of a CUipcMemHandle, which the runtime calls cudaIpcMemHandle_t."""

_LAZY_PEER_ACCESS = 1


class CudaFailed(Exception):
    """The driver cannot be loaded, or refused; `server.shared_memory` tells the client why."""


def find(library: str = LIBRARY) -> "Cuda | CudaFailed":
    """The driver of this machine, or why there is none."""
    try:
        return Cuda(library)
    except CudaFailed as error:
        return error


class MappedAllocation(NamedTuple):
    """Memory of another process: where it begins here, and the bytes its allocation has."""

    address: int
    byte_size: int


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * HANDLE_BYTES),)


_POINTER, _SIZE, _INT = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int
_SIGNATURES: dict[str, tuple[type, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuDeviceGetCount": (ctypes.POINTER(_INT),),
    "cuDeviceGet": (ctypes.POINTER(_INT), _INT),
    "cuDevicePrimaryCtxRetain": (ctypes.POINTER(ctypes.c_void_p), _INT),
    "cuCtxSetCurrent": (ctypes.c_void_p,),
    "cuIpcOpenMemHandle_v2": (ctypes.POINTER(_POINTER), _Handle, ctypes.c_uint),
    "cuIpcCloseMemHandle": (_POINTER,),
    "cuMemGetAddressRange_v2": (ctypes.POINTER(_POINTER), ctypes.POINTER(_SIZE), _POINTER),
    "cuMemcpyDtoH_v2": (ctypes.c_void_p, _POINTER, _SIZE),
    "cuMemcpyHtoD_v2": (_POINTER, ctypes.c_void_p, _SIZE),
    "cuGetErrorString": (_INT, ctypes.POINTER(ctypes.c_char_p)),
}


class Cuda:
    """A driver that has found at least one device. Every method may be called on any thread.

    A device's context is made when its first region is opened, and stays.
    """

    def __init__(self, library: str = LIBRARY) -> None:
        """Load the driver. Raises CudaFailed when there is none, or no device."""
        try:
            self._driver = ctypes.CDLL(library)
            for name, arguments in _SIGNATURES.items():
                getattr(self._driver, name).argtypes = arguments
        except (OSError, AttributeError) as error:
            raise CudaFailed(f"the CUDA driver cannot be loaded: {error}") from error
        count = _INT()
        try:
            self._call("cuInit", 0)
            self._call("cuDeviceGetCount", ctypes.byref(count))
        except CudaFailed as error:
            raise CudaFailed(f"the CUDA driver cannot be used: {error}") from error
        if not count.value:
            raise CudaFailed("the CUDA driver finds no device")
        self._devices = count.value
        self._contexts: dict[int, ctypes.c_void_p] = {}

    def open(self, device_id: int, handle: bytes) -> MappedAllocation:
        """Map what `handle` (HANDLE_BYTES) stands for. Raises CudaFailed."""
        self._use(device_id)
        address, base, size = _POINTER(), _POINTER(), _SIZE()
        self._call(
            "cuIpcOpenMemHandle_v2",
            ctypes.byref(address),
            _Handle.from_buffer_copy(handle),
            _LAZY_PEER_ACCESS,
        )
        try:
            self._call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), address)
        except CudaFailed:
            self.close(device_id, address.value)
            raise
        return MappedAllocation(address.value, base.value + size.value - address.value)

    def close(self, device_id: int, address: int) -> None:
        """Let go of what was opened; CUDA counts how often that was. Raises CudaFailed."""
        self._use(device_id)
        self._call("cuIpcCloseMemHandle", address)

    def read(self, device_id: int, address: int, into: int, byte_size: int) -> None:
        """Copy device memory into this process's, from `into` on. Raises CudaFailed."""
        self._use(device_id)
        self._call("cuMemcpyDtoH_v2", into, address, byte_size)

    def write(self, device_id: int, address: int, source: int, byte_size: int) -> None:
        """The way back. Raises CudaFailed."""
        self._use(device_id)
        self._call("cuMemcpyHtoD_v2", address, source, byte_size)

    def _use(self, device_id: int) -> None:
        """Make the device's context that of this thread."""
        context = self._contexts.get(device_id)
        if context is None:
            context = self._contexts[device_id] = self._context_of(device_id)
        self._call("cuCtxSetCurrent", context)

    def _context_of(self, device_id: int) -> ctypes.c_void_p:
        if not 0 <= device_id < self._devices:
            raise CudaFailed(
                f"there is no device_id {device_id}, this server has {self._devices} CUDA "
                f"device{'s' if self._devices > 1 else ''}, counted from 0"
            )
        device, context = _INT(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), device_id)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        return context

    def _call(self, name: str, *arguments: object) -> None:
        code: int = getattr(self._driver, name)(*arguments)
        if code:
            raise CudaFailed(f"{name}: {self._text_of(code)}")

    def _text_of(self, code: int) -> str:
        text = ctypes.c_char_p()
        if self._driver.cuGetErrorString(code, ctypes.byref(text)) or text.value is None:
            return f"error {code}"
        return text.value.decode(errors="replace")
