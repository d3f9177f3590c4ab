"""Shared memory of clients: the regions they registered, and where in them a tensor lies.

The codecs ask here for a `Place` per tensor (`server.tensor_places` reads the wire's form), read
inputs from it while they decode and write outputs into it while they encode; `server.rest` and
the gRPC door register and unregister. Texts are Triton's where it has one.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from weakref import WeakValueDictionary

from server.errors import InvalidRequest, RegionExists, TooLarge, UnknownRegion, Unsupported
from server.shared_memory_system import SystemRegion

MAX_REGIONS = 1024
"""Regions registered at a time; each costs a file descriptor."""

DISABLED = (
    "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
)


class Place(NamedTuple):
    """Where a tensor's bytes lie: `byte_size` bytes from `offset` of a region, all inside it.

    A region that is unregistered meanwhile stays until its last place is gone.
    """

    tensor: str
    region: SystemRegion
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


Places = Mapping[str, Place]
"""Where outputs go, by name; outputs that are not in it travel in the response."""

NO_PLACES: Places = {}


class SharedMemory:
    """The table of registered regions. It belongs to the event loop's thread.

    Everything raises Unsupported while the server does not allow client shared memory.
    `max_tensor_bytes` bounds what one tensor may read or write.
    """

    def __init__(self, allowed: bool, max_tensor_bytes: int) -> None:
        self._allowed = allowed
        self._max_tensor_bytes = max_tensor_bytes
        self._registered: dict[str, SystemRegion] = {}
        self._leaving: WeakValueDictionary[str, SystemRegion] = WeakValueDictionary()

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Register `byte_size` bytes from `offset` of the POSIX shared memory object `key`.

        Raises Unsupported, RegionExists, InvalidRequest, TooLarge.
        """
        self.check_allowed()
        if not name:
            raise InvalidRequest(
                "'region name' is necessary to register system shared memory region"
            )
        if self._find(name) is not None:
            raise RegionExists(f"shared memory region '{name}' already in manager")
        if len(self._registered) + len(self._leaving) >= MAX_REGIONS:
            raise TooLarge(
                f"failed to register shared memory region '{name}': {MAX_REGIONS} regions are "
                "registered already; unregister some"
            )
        self._registered[name] = SystemRegion(name, key, offset, byte_size)

    def regions(self, name: str = "") -> Sequence[SystemRegion]:
        """The region asked for, or all of them by name. Raises Unsupported, UnknownRegion."""
        self.check_allowed()
        if not name:
            everything = {**self._leaving, **self._registered}
            return [everything[one] for one in sorted(everything)]
        region = self._find(name)
        if region is None:
            raise UnknownRegion(f"Unable to find system shared memory region: '{name}'")
        return [region]

    def unregister(self, name: str = "") -> None:
        """Forget one region, or all of them; an unknown one is no error. Raises Unsupported.

        A region an unanswered request still writes to is forgotten when the answer is written.
        """
        self.check_allowed()
        for one in (name,) if name else tuple(self._registered):
            region = self._registered.pop(one, None)
            if region is not None:
                self._leaving[one] = region

    def register_cuda(self, name: str) -> None:
        """Always raises: InvalidRequest without a name, Unsupported with one."""
        self.check_allowed()
        if not name:
            raise InvalidRequest("'region name' is necessary to register cuda shared memory region")
        raise Unsupported(
            f"failed to register CUDA shared memory region: '{name}', this server does not offer "
            "it yet; register system shared memory instead"
        )

    def check_cuda(self, name: str = "") -> None:
        """Stand in for the status of CUDA regions, of which there are none.

        Raises Unsupported, UnknownRegion for any name.
        """
        self.check_allowed()
        if name and self._find(name) is not None:
            raise UnknownRegion(
                f"The region named '{name}' is registered as system shared memory, not CUDA "
                "shared memory"
            )
        if name:
            raise UnknownRegion(f"Unable to find cuda shared memory region: '{name}'")

    def unregister_cuda(self) -> None:
        """There is nothing to forget. Raises Unsupported."""
        self.check_allowed()

    def place(self, tensor: str, region_name: str, offset: int, byte_size: int) -> Place:
        """Where a tensor lies. Raises Unsupported, UnknownRegion, InvalidRequest, TooLarge."""
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
            raise TooLarge(
                f"'{tensor}' takes {byte_size} bytes of shared memory region '{region_name}', more "
                f"than the maximum of {self._max_tensor_bytes}; use --client-shm-max-tensor-size "
                "to raise it"
            )
        return Place(tensor, region, offset, byte_size)

    def check_allowed(self) -> None:
        """Raise Unsupported where the server does not allow client shared memory."""
        if not self._allowed:
            raise Unsupported(DISABLED)

    def _find(self, name: str) -> SystemRegion | None:
        return self._registered.get(name) or self._leaving.get(name)


DISALLOWED = SharedMemory(False, 0)
"""What a codec asks where nobody allowed client shared memory."""
