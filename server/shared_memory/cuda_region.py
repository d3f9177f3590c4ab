"""Device memory that a client shares by its CUDA IPC handle.

What lies there is copied into this machine's memory while a request is read, and results are copied
back while it is answered: models take their inputs from there whatever device they run on.
"""

import logging
from weakref import finalize

import numpy as np

from server.errors import InvalidRequest
from server.shared_memory.cuda import HANDLE_BYTES, Cuda, CudaFailed, MappedAllocation

_log = logging.getLogger(__name__)


class CudaRegion:
    """`byte_size` bytes of a device's memory, mapped while anybody holds this."""

    __slots__ = ("__weakref__", "_address", "_cuda", "byte_size", "device_id", "name")
    kind = "CUDA"

    def __init__(
        self, cuda: Cuda, name: str, handle: bytes, device_id: int, byte_size: int
    ) -> None:
        """Open it: makes the device's context if need be, which takes a good part of a second.

        Raises InvalidRequest when handle, device or size cannot be allowed.
        """
        self.name = name
        self.device_id = device_id
        self.byte_size = byte_size
        self._cuda = cuda
        self._address = self._open(handle).address

    def read(self, offset: int, byte_size: int) -> memoryview:
        octets = np.empty(byte_size, np.uint8)
        if byte_size:
            try:
                self._cuda.read(
                    self.device_id, self._address + offset, octets.ctypes.data, byte_size
                )
            except CudaFailed as error:
                raise self._unusable(error) from error
        return octets.data.toreadonly()

    def write(self, offset: int, data: bytes | memoryview) -> None:
        if not len(data):
            return
        octets = np.frombuffer(data, np.uint8)
        try:
            self._cuda.write(
                self.device_id, self._address + offset, octets.ctypes.data, octets.nbytes
            )
        except CudaFailed as error:
            raise self._unusable(error) from error

    def _open(self, handle: bytes) -> MappedAllocation:
        if len(handle) != HANDLE_BYTES:
            raise self._failed(f"a cudaIpcMemHandle_t has {HANDLE_BYTES} bytes, got {len(handle)}")
        if self.byte_size < 1:
            raise self._failed(f"byte_size must be at least 1, got {self.byte_size}")
        try:
            mapped = self._cuda.open(self.device_id, handle)
        except CudaFailed as error:
            raise self._failed(str(error)) from error
        if self.byte_size > mapped.byte_size:
            _close(self._cuda, self.device_id, mapped.address)
            raise self._failed(
                f"byte_size {self.byte_size} does not lie within the {mapped.byte_size} bytes of "
                "the allocation"
            )
        finalize(self, _close, self._cuda, self.device_id, mapped.address).atexit = False
        return mapped

    def _failed(self, reason: str) -> InvalidRequest:
        return InvalidRequest(
            f"failed to register shared memory region '{self.name}': invalid args: {reason}"
        )

    def _unusable(self, error: CudaFailed) -> InvalidRequest:
        return InvalidRequest(f"shared memory region '{self.name}' cannot be used: {error}")


def _close(cuda: Cuda, device_id: int, address: int) -> None:
    try:
        cuda.close(device_id, address)
    except CudaFailed as error:
        _log.warning("memory of CUDA device %d stays mapped: %s", device_id, error)
