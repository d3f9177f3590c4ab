"""Read the `shared_memory_*` parameters of a tensor, as each wire writes them.

The codecs call this for tensors that have parameters, and get a `RegionSlice` back where the tensor
lies in shared memory. Source of the texts: Triton's front ends.
"""

from collections.abc import Mapping
from typing import Any

from tritonclient.grpc import service_pb2 as pb

from server.errors import Internal, InvalidRequest
from server.shared_memory.regions import RegionSlice, SharedMemory

REGION = "shared_memory_region"
OFFSET = "shared_memory_offset"
BYTE_SIZE = "shared_memory_byte_size"


def place_in_json(
    shared: SharedMemory, tensor: str, parameters: Mapping[str, Any]
) -> RegionSlice | None:
    """The place `parameters` give the tensor, None when they give none.

    Raises what `SharedMemory.place` raises, InvalidRequest, and Internal for wrong JSON types.
    """
    if not _names_a_place(shared, tensor, parameters):
        return None
    if "classification" in parameters:
        raise InvalidRequest(f"Output can't set both '{REGION}' and 'classification'")
    region = parameters[REGION]
    if type(region) is not str:
        raise Internal(f"Unable to parse '{REGION}': attempt to access JSON non-string as string")
    offset, byte_size = parameters.get(OFFSET, 0), parameters[BYTE_SIZE]
    for key, value in ((OFFSET, offset), (BYTE_SIZE, byte_size)):
        if type(value) is not int or value < 0:
            raise Internal(
                f"Unable to parse '{key}': attempt to access JSON non-unsigned-integer as "
                "unsigned-integer"
            )
    return shared.place(tensor, region, offset, byte_size)


def place_in_message(
    shared: SharedMemory, tensor: str, parameters: Mapping[str, pb.InferParameter]
) -> RegionSlice | None:
    """The same of a gRPC tensor's parameters."""
    if not _names_a_place(shared, tensor, parameters):
        return None
    if "classification" in parameters:
        raise InvalidRequest(f"output can't set both '{REGION}' and 'classification'")
    _check_choice(tensor, parameters, REGION, "string_param")
    _check_choice(tensor, parameters, BYTE_SIZE, "int64_param")
    offset = 0
    if OFFSET in parameters:
        _check_choice(tensor, parameters, OFFSET, "int64_param")
        offset = parameters[OFFSET].int64_param
    region, byte_size = parameters[REGION].string_param, parameters[BYTE_SIZE].int64_param
    return shared.place(tensor, region, offset, byte_size)


def _names_a_place(shared: SharedMemory, tensor: str, parameters: Mapping[str, Any]) -> bool:
    if REGION not in parameters:
        for key in (OFFSET, BYTE_SIZE):
            if key in parameters:
                raise InvalidRequest(
                    f"'{key}' can not be specified without '{REGION}' parameter for tensor "
                    f"'{tensor}'"
                )
        return False
    shared.check_allowed()
    if BYTE_SIZE not in parameters:
        raise InvalidRequest(
            f"'{BYTE_SIZE}' must be specified along with '{REGION}' parameter for tensor '{tensor}'"
        )
    return True


def _check_choice(
    tensor: str, parameters: Mapping[str, pb.InferParameter], key: str, choice: str
) -> None:
    if parameters[key].WhichOneof("parameter_choice") != choice:
        raise InvalidRequest(
            f"invalid value type for '{key}' parameter for tensor '{tensor}', expected {choice}."
        )
