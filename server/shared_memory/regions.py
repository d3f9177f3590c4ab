"""Shared memory of clients: the regions they registered, and where in them a tensor lies.

The codecs ask here for a `RegionSlice` per tensor (`server.codec.shared_memory_parameters` reads
the wire's form), read inputs from it while they decode and write outputs into it while they encode;
`server.rest.app` and the gRPC listener register and unregister. Texts are Triton's where it has
one.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar
from weakref import WeakValueDictionary

from server.errors import InvalidRequest, RegionExists, RequestTooLarge, UnknownRegion, Unsupported
from server.shared_memory.cuda import Cuda, CudaFailed
from server.shared_memory.cuda_region import CudaRegion
from server.shared_memory.system import SystemRegion

Region = SystemRegion | CudaRegion
OfKind = TypeVar("OfKind", SystemRegion, CudaRegion)

MAX_REGIONS = 1024
"""Regions registered at a time; each costs a file descriptor."""

DISABLED = (
    "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
)

_NOT_ASKED_FOR = CudaFailed("the CUDA driver was not probed")


class RegionSlice(NamedTuple):
    """Where a tensor's bytes lie: `byte_size` bytes from `offset` of a region, all inside it.

    A region that is unregistered meanwhile stays until its last place is gone.
    """

    tensor: str
    region: Region
    offset: int
    byte_size: int

    def read(self) -> memoryview:
        """A copy of the bytes: what the client changes from now on changes no running request.

        Raises InvalidRequest when the region has been truncated.
        """
        return self.region.read(self.offset, self.byte_size)

    def write(self, data: bytes | memoryview) -> None:
        """Put an output's bytes here. Raises InvalidRequest when they do not fit."""
        if len(data) > self.byte_size:
            raise InvalidRequest(
                f"shared memory size specified with the request for output '{self.tensor}' "
                f"({self.byte_size} bytes) should be at least {len(data)} bytes to hold the results"
            )
        self.region.write(self.offset, data)


Places = Mapping[str, RegionSlice]
"""Where outputs go, by name; outputs that are not in it travel in the response."""

NO_PLACES: Places = {}


class SharedMemory:
    """The table of registered regions. It belongs to the event loop's thread.

    Everything but `regions` raises Unsupported while the server does not allow it to clients.
    `max_tensor_bytes` bounds what one tensor may read or write. `cuda`: the driver, or why there
    is none.
    """

    def __init__(
        self, allowed: bool, max_tensor_bytes: int, cuda: Cuda | CudaFailed = _NOT_ASKED_FOR
    ) -> None:
        self._allowed = allowed
        self._max_tensor_bytes = max_tensor_bytes
        self._cuda = cuda
        self._registered: dict[str, Region] = {}
        self._leaving: WeakValueDictionary[str, Region] = WeakValueDictionary()
        self._opening: set[str] = set()

    @property
    def offers_cuda(self) -> bool:
        """Whether regions of devices can be registered."""
        return self._allowed and isinstance(self._cuda, Cuda)

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Register `byte_size` bytes from `offset` of the POSIX shared memory object `key`.

        Raises Unsupported, RegionExists, InvalidRequest, RequestTooLarge.
        """
        self.check_allowed()
        self._check_free(name, SystemRegion.kind)
        self._registered[name] = SystemRegion(name, key, offset, byte_size)

    async def register_cuda(self, name: str, handle: bytes, device_id: int, byte_size: int) -> None:
        """Register the first `byte_size` bytes of what the IPC handle stands for.

        On a thread: the first region of a device makes its context. Raises Unsupported where there
        is no driver or no device, RegionExists, InvalidRequest, RequestTooLarge.
        """
        cuda = self.check_cuda(name)
        self._check_free(name, CudaRegion.kind)
        self._opening.add(name)
        try:
            self._registered[name] = await asyncio.to_thread(
                CudaRegion, cuda, name, handle, device_id, byte_size
            )
        finally:
            self._opening.discard(name)

    def check_cuda(self, name: str) -> Cuda:
        """The driver. Raises InvalidRequest without a name, Unsupported where there is none."""
        self.check_allowed()
        self._check_named(name, CudaRegion.kind)
        if isinstance(self._cuda, CudaFailed):
            raise Unsupported(
                f"failed to register CUDA shared memory region: '{name}', {self._cuda}; register "
                "system shared memory instead"
            )
        return self._cuda

    def regions(self, kind: type[OfKind], name: str = "") -> Sequence[OfKind]:
        """The region asked for, or all of them by name; there are none where they are not allowed.

        Raises UnknownRegion.
        """
        if not name:
            everything = {**self._leaving, **self._registered}
            found = [everything[one] for one in sorted(everything)]
            return [region for region in found if isinstance(region, kind)]
        region = self._find(name)
        if region is None:
            raise UnknownRegion(
                f"Unable to find {kind.kind.lower()} shared memory region: '{name}'"
            )
        if not isinstance(region, kind):
            raise UnknownRegion(
                f"The region named '{name}' is registered as {region.kind} shared memory, not "
                f"{kind.kind} shared memory"
            )
        return [region]

    def unregister(self, kind: type[SystemRegion] | type[CudaRegion], name: str = "") -> None:
        """Forget one region of a kind, or all; an unknown one is no error. Raises Unsupported.

        A region an unanswered request still writes to is forgotten when the answer is written.
        """
        self.check_allowed()
        for one in (name,) if name else tuple(self._registered):
            if isinstance(self._registered.get(one), kind):
                self._leaving[one] = self._registered.pop(one)

    def place(self, tensor: str, region_name: str, offset: int, byte_size: int) -> RegionSlice:
        """Where a tensor lies. Raises Unsupported, UnknownRegion, InvalidRequest,
        RequestTooLarge."""
        self.check_allowed()
        region = self._find(region_name)
        if region is None:
            raise UnknownRegion(f"Unable to find shared memory region: '{region_name}'")
        if offset < 0 or offset > region.byte_size:
            raise InvalidRequest(
                f"Invalid offset for shared memory region: '{region_name}' "
                f"(got {offset} for '{tensor}', the region has {region.byte_size} bytes)"
            )
        if byte_size < 0 or offset + byte_size > region.byte_size:
            raise InvalidRequest(
                f"Invalid offset + byte size for shared memory region: '{region_name}' "
                f"(got {offset} + {byte_size} for '{tensor}', the region has "
                f"{region.byte_size} bytes)"
            )
        if byte_size > self._max_tensor_bytes:
            raise RequestTooLarge(
                f"'{tensor}' takes {byte_size} bytes of shared memory region '{region_name}', more "
                f"than the maximum of {self._max_tensor_bytes}; use --client-shm-max-tensor-size "
                "to raise it"
            )
        return RegionSlice(tensor, region, offset, byte_size)

    def check_allowed(self) -> None:
        """Raise Unsupported where the server does not allow client shared memory."""
        if not self._allowed:
            raise Unsupported(DISABLED)

    def _check_named(self, name: str, kind: str) -> None:
        if not name:
            raise InvalidRequest(
                f"'region name' is necessary to register {kind.lower()} shared memory region"
            )

    def _check_free(self, name: str, kind: str) -> None:
        """Whether one more region, of this name, may be registered."""
        self._check_named(name, kind)
        if self._find(name) is not None or name in self._opening:
            raise RegionExists(f"shared memory region '{name}' already in manager")
        if len(self._registered) + len(self._leaving) + len(self._opening) >= MAX_REGIONS:
            raise RequestTooLarge(
                f"failed to register shared memory region '{name}': {MAX_REGIONS} regions are "
                "registered already; unregister some"
            )

    def _find(self, name: str) -> Region | None:
        return self._registered.get(name) or self._leaving.get(name)


DISALLOWED = SharedMemory(False, 0)
"""What a codec asks where nobody allowed client shared memory."""
