"""Answers kept for requests that ask the same again: least recently used goes first. Pure policy.

One per server, bounded in bytes. `schedulers.cached_scheduler` asks before it queues a request.
What makes two requests the same is in `key_of`: Triton's cache hashes names and bytes only.
"""

from collections import OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from backends.seam import Tensors
from repository.config.tensors import Array, held_bytes
from schedulers.request import InferRequest, InferResponse

ENTRY_BYTES = 1024
"""What an entry costs beside its tensors' bytes: keys, array headers, dictionaries."""

Key = bytes


class CachedResponse(NamedTuple):
    """What is kept of a response; the arrays are copies nobody writes to."""

    outputs: Tensors
    parameters: Mapping[str, Any]
    size_bytes: int


class ResponseCache:
    """Answers by owner (one loaded version) and key, `size_bytes` of them at most."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.used_bytes = 0
        self._answers: OrderedDict[tuple[int, Key], CachedResponse] = OrderedDict()
        self._owned: dict[int, set[Key]] = {}
        self._owners = count()

    def __len__(self) -> int:
        return len(self._answers)

    def join(self) -> int:
        """A new owner; its answers are its own, so that a reload begins with none."""
        owner = next(self._owners)
        self._owned[owner] = set()
        return owner

    def leave(self, owner: int) -> None:
        """Drop everything the owner has. Idempotent."""
        for key in self._owned.pop(owner, ()):
            self.used_bytes -= self._answers.pop((owner, key)).size_bytes

    def get(self, owner: int, key: Key) -> CachedResponse | None:
        """The answer, now the most recently used one."""
        answer = self._answers.get((owner, key))
        if answer is not None:
            self._answers.move_to_end((owner, key))
        return answer

    def put(self, owner: int, key: Key, answer: CachedResponse) -> None:
        """Keep an answer, at the cost of the least recently used ones; not one larger than the
        whole cache, nor one of an owner that has left."""
        if answer.size_bytes > self.size_bytes or owner not in self._owned:
            return
        self._drop(owner, key)
        self._answers[owner, key] = answer
        self._owned[owner].add(key)
        self.used_bytes += answer.size_bytes
        while self.used_bytes > self.size_bytes:
            self._drop(*next(iter(self._answers)))

    def _drop(self, owner: int, key: Key) -> None:
        answer = self._answers.pop((owner, key), None)
        if answer is not None:
            self._owned[owner].discard(key)
            self.used_bytes -= answer.size_bytes


def key_of(request: InferRequest) -> Key:
    """Equal for two requests of one version exactly when a model that depends on nothing but its
    request answers them alike: names, data types, shapes and bytes of the inputs, the outputs
    asked for, the custom parameters, and the sequence they belong to."""
    digest = sha256()
    asked = sorted((name, repr(value)) for name, value in request.parameters.items())
    digest.update(
        repr((request.requested_outputs, asked, request.sequence)).encode("utf-8", "surrogatepass")
    )
    for name in sorted(request.inputs):
        array = request.inputs[name]
        digest.update(repr((name, array.dtype.name, array.shape)).encode("utf-8", "surrogatepass"))
        if array.dtype.hasobject:
            _update_strings(digest, array)
        else:
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.digest()


def _update_strings(digest: Any, array: Array) -> None:
    elements: list[bytes] = array.ravel().tolist()
    digest.update(repr([len(element) for element in elements]).encode())
    digest.update(b"".join(elements))


def answer_of(response: InferResponse) -> CachedResponse:
    """What to keep of a response: copies, because its arrays may be views of a whole batch."""
    outputs = {name: _kept(array) for name, array in response.outputs.items()}
    size_bytes = ENTRY_BYTES + sum(map(held_bytes, outputs.values()))
    return CachedResponse(outputs, dict(response.parameters), size_bytes)


def _kept(array: Array) -> Array:
    copied = array.copy()
    copied.flags.writeable = False
    return copied
