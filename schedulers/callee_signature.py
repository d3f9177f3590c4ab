"""What a caller may know of a model that it calls; `server.signature` has it compiled. Pure."""

from collections.abc import Mapping
from typing import Protocol


class CalleeTensor(Protocol):
    """An input or output of a step's model, as `server.signature` compiles it. `full_dims`: with a
    leading -1 where the model batches; `dims` without."""

    @property
    def datatype(self) -> str: ...
    @property
    def dims(self) -> tuple[int, ...]: ...
    @property
    def full_dims(self) -> tuple[int, ...]: ...
    @property
    def optional(self) -> bool: ...
    @property
    def labels(self) -> tuple[str, ...]: ...


class CalleeSignature(Protocol):
    """What a step's model takes and answers. `max_batch`: 0 without a batch dimension."""

    @property
    def model(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def max_batch(self) -> int: ...
    @property
    def inputs(self) -> Mapping[str, CalleeTensor]: ...
    @property
    def outputs(self) -> Mapping[str, CalleeTensor]: ...
    @property
    def decoupled(self) -> bool: ...
