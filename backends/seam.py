"""The seam between scheduling and runtimes: Batch, Instance, Backend.

A new runtime is one file with a `Backend`, and one line in `backends/registry.py`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from repository.config.tensors import Array
from repository.model import ModelConfig, ModelVersion

Tensors = Mapping[str, Array]
Parameters = Mapping[str, Any]

NO_PARAMETERS: Parameters = MappingProxyType({})


class Member(Protocol):
    """What a model may know of one request of its batch (no future, no clock)."""

    @property
    def id(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...
    @property
    def inputs(self) -> Tensors: ...
    @property
    def requested_outputs(self) -> tuple[str, ...]:
        """Names of the outputs asked for; empty means all."""

    @property
    def correlation_id(self) -> int | str: ...
    @property
    def timeout_us(self) -> int: ...


SEQUENCE_START, SEQUENCE_END = 1, 2
"""Flags of a request in its sequence, as Triton numbers them."""


class SequenceRows(NamedTuple):
    """How the members of a batch stand in their sequences; of a model with `sequence_batching`.

    `slots`: of each member the slot of its sequence, under which its instance keeps the state.
    `flags`: of each member, `SEQUENCE_START` and `SEQUENCE_END`. `height`: rows of the execution,
    where each member stands in the row of its slot and rows without a member are not READY; 0
    where the members stand one behind the other. `released`: slots whose sequences are over, so
    that their states can be forgotten; a batch may have nothing else.
    """

    slots: tuple[int, ...]
    flags: tuple[int, ...]
    height: int = 0
    released: tuple[int, ...] = ()


def requested_outputs(of_members: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The outputs at least one member wants; empty means all, as it does for each."""
    names: dict[str, None] = {}
    for wanted in of_members:
        if not wanted:
            return ()
        names.update(dict.fromkeys(wanted))
    return tuple(names)


class Batch(Struct, frozen=True, eq=False):
    """The requests one execution serves; immutable, owned by the instance while it executes.

    `rows[i]` is how many rows (leading dimension) `members[i]` brought; 1 each when the model
    does not batch, and then there is exactly one member. `batched` says whether the model's
    config has `max_batch_size` > 0, i.e. whether dimension 0 is the batch. `sequences`: of a model
    with `sequence_batching`, whose members bring one row each.
    """

    members: Sequence[Member]
    rows: Sequence[int]
    batched: bool
    sequences: SequenceRows | None = None

    def requested_outputs(self) -> tuple[str, ...]:
        """The outputs at least one member wants; empty means all."""
        return requested_outputs(member.requested_outputs for member in self.members)


Result = Tensors | Exception
"""What one request gets: its output tensors by name, or its own error; `backends.errors.Reschedule`
where the model asks for another execution of it."""


class BatchResult(NamedTuple):
    """One execution: a Result per member, in order, and where the time went (nanoseconds).

    `parameters`: what a member's answer says besides its tensors, by the member's index; of most
    models, nothing.
    """

    results: Sequence[Result]
    input_ns: int
    infer_ns: int
    output_ns: int
    parameters: Mapping[int, Parameters] = MappingProxyType({})


class ResponsePart(NamedTuple):
    """One step of a decoupled request's answer.

    `result` None says nothing but what `last` says: whether the answer is over. After an error
    nobody reads any more. A last part whose result is a `Reschedule` ends this execution, and the
    answer goes on with the next one.
    """

    result: Result | None
    parameters: Parameters = NO_PARAMETERS
    last: bool = False


class Instance(Protocol):
    """One copy of a model that can execute one batch at a time.

    `device`: "cpu" or "cuda:N". `cores`: core tokens an execution takes; 0 when it does not
    compute on this machine's cores. `ready`: whether `execute` may be called now; an instance
    whose process died turns it off, restarts itself and turns it on again. `changed`: set by the
    owner, called from any thread after every change of `ready`.
    """

    device: str
    cores: int
    ready: bool
    changed: Callable[[], None]

    def execute(self, batch: Batch) -> BatchResult:
        """Run one batch; blocks; called by one thread at a time, always the same but for a
        `LoopSafeInstance`, which the event loop's may call as well.

        A problem of one request is that request's `Result`. Raises `ExecutionFailed`,
        `FaultyModel` or `InstanceDied` when the whole batch is lost.
        """

    def close(self) -> None:
        """Give everything back. Called once, from another thread than `execute`; must not raise.

        Comes after the last batch, or while a batch runs that outlasted its scheduler's patience.
        """


class LoopSafeInstance(Instance, Protocol):
    """One whose short executions may run on the event loop's own thread.

    `loop_safe`: `execute` waits for nothing but a processor, and how long it takes follows from the
    number of rows, whatever is in them.
    """

    loop_safe: bool


class ResponseSender(Protocol):
    """Where one member's responses go, as the model sees it; `backends.response_sender` has the
    promises.

    `cancelled`: nobody reads any more. `notify`: for an instance that only passes parts on; called
    when a part was read (False) and when the reader has gone (True).
    """

    cancelled: bool
    ended: bool
    notify: Callable[[bool], None] | None

    def send(self, part: ResponsePart) -> bool:
        """Hand a part over, from any thread; waits for a slow reader. False once it has ended."""

    def pass_on(self, part: ResponsePart) -> bool:
        """As `send`, without waiting."""


class StreamingInstance(Instance, Protocol):
    """An instance of a model that may be decoupled: zero or more responses per request.

    `streams`: whether it is; then `stream` is called instead of `execute`.
    """

    streams: bool

    def stream(self, batch: Batch, outlets: Sequence[ResponseSender]) -> BatchResult:
        """Hand a batch to the model; blocks while the model takes it in, one call at a time.

        Each member's responses go to its outlet, from any thread, during this call and after it;
        every outlet will end. The outcome has no results, only the time this call took. When it
        raises, as `execute` does, the outlets that have not ended are the caller's to end.
        """


class CancellableInstance(Instance, Protocol):
    """An instance whose model can be told, while it executes, that nobody waits any more."""

    def cancel(self, batch: Batch, member: int) -> None:
        """The member's client has gone. Never blocks; ignored when the batch has ended."""


@dataclass(frozen=True, slots=True)
class Device:
    """Where instances run: kind "cpu" or "cuda", the device's index, threads per execution."""

    kind: str
    index: int
    threads: int


class LoadedInstances(NamedTuple):
    """Instances ready to execute, and the config they serve (a python model completes its own)."""

    instances: Sequence[Instance]
    config: ModelConfig


class Backend(Protocol):
    """A runtime. `complete` runs in the checking subprocess, `load` in the serving one."""

    def complete(self, version: ModelVersion, default_max_batch: int) -> ModelConfig:
        """The config with everything filled in that the artefact itself knows.

        `default_max_batch`: the `max_batch_size` of a model that can batch and does not say.

        Pure with respect to the repository: reads the artefact, executes none of it. Fills
        `backend`, `input`, `output`, `max_batch_size` where unset; raises `LoadFailed` where the
        config as written contradicts the artefact, naming field, value and what the artefact has.
        """

    def load(self, version: ModelVersion, device: Device, count: int) -> LoadedInstances:
        """`count` instances on one device, ready to execute; they may share weights.

        Blocks; called from a loading thread. Raises `LoadFailed`; leaves nothing behind then.
        """
