"""An infer body, JSON or raw, decoded for the version that will answer it."""

from server.codec import json_infer
from server.codec.form import Asked
from server.codec.raw_body import decode_raw
from server.rest.envelope import Envelope, check_json_length
from server.shared_memory.regions import SharedMemory
from server.signature import Signature


def decode_body(
    body: bytes,
    envelope: Envelope,
    signature: Signature,
    arrived_ns: int,
    max_depth: int,
    shared: SharedMemory,
) -> Asked:
    """Raises what the codecs raise."""
    length = envelope.json_length
    if length == 0:
        return decode_raw(body, signature, arrived_ns)
    if length is not None:
        check_json_length(length, len(body))
    return json_infer.decode(body, length, signature, arrived_ns, max_depth, shared)
