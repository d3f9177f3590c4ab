"""gRPC's shared-memory methods: register, status and unregister of regions.

`server.grpc.service` puts `shared_memory_methods` into its table; the regions are those of
`server.shared_memory.regions`.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf.message import Message
from tritonclient.grpc import service_pb2 as pb

from server.shared_memory.cuda_region import CudaRegion
from server.shared_memory.regions import SharedMemory
from server.shared_memory.system import SystemRegion

Answer = Callable[[Any, Any], Awaitable[Message]]


def shared_memory_methods(shared: SharedMemory) -> dict[str, tuple[type[Message], Answer]]:
    """Method name → the message it takes, and what answers it."""
    regions = _RegionMethods(shared)
    return {
        "SystemSharedMemoryStatus": (pb.SystemSharedMemoryStatusRequest, regions.status),
        "SystemSharedMemoryRegister": (pb.SystemSharedMemoryRegisterRequest, regions.register),
        "SystemSharedMemoryUnregister": (
            pb.SystemSharedMemoryUnregisterRequest,
            regions.unregister,
        ),
        "CudaSharedMemoryStatus": (pb.CudaSharedMemoryStatusRequest, regions.cuda_status),
        "CudaSharedMemoryRegister": (pb.CudaSharedMemoryRegisterRequest, regions.register_cuda),
        "CudaSharedMemoryUnregister": (
            pb.CudaSharedMemoryUnregisterRequest,
            regions.unregister_cuda,
        ),
    }


class _RegionMethods:
    def __init__(self, shared: SharedMemory) -> None:
        self._shared = shared

    async def status(
        self, message: pb.SystemSharedMemoryStatusRequest, call: object
    ) -> pb.SystemSharedMemoryStatusResponse:
        answer = pb.SystemSharedMemoryStatusResponse()
        for region in self._shared.regions(SystemRegion, message.name):
            found = answer.regions[region.name]
            found.name, found.key = region.name, region.key
            found.offset, found.byte_size = region.offset, region.byte_size
        return answer

    async def register(
        self, message: pb.SystemSharedMemoryRegisterRequest, call: object
    ) -> pb.SystemSharedMemoryRegisterResponse:
        self._shared.register(message.name, message.key, message.offset, message.byte_size)
        return pb.SystemSharedMemoryRegisterResponse()

    async def unregister(
        self, message: pb.SystemSharedMemoryUnregisterRequest, call: object
    ) -> pb.SystemSharedMemoryUnregisterResponse:
        self._shared.unregister(SystemRegion, message.name)
        return pb.SystemSharedMemoryUnregisterResponse()

    async def cuda_status(
        self, message: pb.CudaSharedMemoryStatusRequest, call: object
    ) -> pb.CudaSharedMemoryStatusResponse:
        answer = pb.CudaSharedMemoryStatusResponse()
        for region in self._shared.regions(CudaRegion, message.name):
            found = answer.regions[region.name]
            found.name = region.name
            found.device_id, found.byte_size = region.device_id, region.byte_size
        return answer

    async def register_cuda(
        self, message: pb.CudaSharedMemoryRegisterRequest, call: object
    ) -> pb.CudaSharedMemoryRegisterResponse:
        await self._shared.register_cuda(
            message.name, message.raw_handle, message.device_id, message.byte_size
        )
        return pb.CudaSharedMemoryRegisterResponse()

    async def unregister_cuda(
        self, message: pb.CudaSharedMemoryUnregisterRequest, call: object
    ) -> pb.CudaSharedMemoryUnregisterResponse:
        self._shared.unregister(CudaRegion, message.name)
        return pb.CudaSharedMemoryUnregisterResponse()
