"""What a script is answered: parts of an answer as messages, errors under Triton's codes."""

import json

from backends.errors import ModelError
from backends.process.call_messages import CallError, CallPart
from backends.process.message_tensors import pack_message
from backends.process.messages import encode
from schedulers.errors import Cancelled
from schedulers.reply import NotOneResponse
from schedulers.request import InferResponse
from server.errors import client_text, status_of

LARGE_BYTES = 1 << 20
"""From here on tensors are copied on another thread than the loop's: 1 MiB takes about 0.2 ms."""

_CODES = {
    "INVALID_ARGUMENT": "INVALID_ARG",
    "NOT_FOUND": "NOT_FOUND",
    "UNAVAILABLE": "UNAVAILABLE",
    "RESOURCE_EXHAUSTED": "UNAVAILABLE",
    "UNIMPLEMENTED": "UNSUPPORTED",
    "ALREADY_EXISTS": "ALREADY_EXISTS",
    "CANCELLED": "CANCELLED",
    "UNKNOWN": "UNKNOWN",
    "PERMISSION_DENIED": "INVALID_ARG",
    "UNAUTHENTICATED": "INVALID_ARG",
}
"""Triton's eight codes by gRPC's; INTERNAL for all others."""


def response_part(number: int, response: InferResponse, last: bool) -> tuple[bytes, int]:
    """A response with its tensors: the message, and the descriptor that goes with it or -1. Any
    thread may call. Raises ValueError for tensors that cannot travel."""
    blocks, data, fd = pack_message(response.outputs)
    parameters = json.dumps(dict(response.parameters)) if response.parameters else ""
    part = CallPart(number, last, False, None, blocks, data, parameters)
    return encode(part), fd


def end_part(number: int) -> bytes:
    """An end behind the last response."""
    return encode(CallPart(number, True, True, None, (), b"", ""))


def error_part(number: int, model: str, error: Exception) -> bytes:
    """The end of a call that has no (further) response."""
    return encode(CallPart(number, True, True, call_error(model, error), (), b"", ""))


def call_error(model: str, error: Exception) -> CallError:
    """What the script reads."""
    if isinstance(error, ModelError):
        return CallError(str(error), error.code)
    if isinstance(error, NotOneResponse):
        return CallError(
            f"Model {model} is using the decoupled. The current BLS request call doesn't support "
            "models using the decoupled transaction policy. Please use 'decoupled=True' argument "
            "to the 'exec' or 'async_exec' calls for decoupled models.'",
            "INVALID_ARG",
        )
    text = client_text(error)
    if isinstance(error, Cancelled):
        text = text or "Request cancelled"
    return CallError(text, _CODES.get(status_of(error).grpc, "INTERNAL"))


def size_of(response: InferResponse) -> int:
    """Bytes of its tensors, those of BYTES without their contents."""
    return sum(array.nbytes for array in response.outputs.values())
