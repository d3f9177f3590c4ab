"""What travels: the request inwards, the response outwards. Neither knows of any wire.

Built once by a codec in `server`, after routing; handed to a scheduler by `server.dataplane`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from backends.seam import Tensors
from control.access.scopes import Principal

NO_PARAMETERS: Mapping[str, Any] = {}


class Sequence(NamedTuple):
    """Membership of a sequence: its key, and whether this request starts or ends it."""

    key: int | str
    start: bool
    end: bool


class VersionHold(Protocol):
    """A loaded version that somebody has asked not to close yet."""

    def release(self) -> None:
        """It may close, as far as the one who kept it is concerned."""


@dataclass(slots=True, eq=False)
class CallRoot:
    """What all calls that one request of a client causes have in common.

    `arms`: what answers for a route, by its name, picked by the first call that named it.
    `versions`: those that are kept until the request ends, by public name and version text ("" for
    any). `script_calls`: the replies of calls for which models that execute wait.
    """

    arms: dict[str, Any] = field(default_factory=dict)
    versions: dict[tuple[str, str], VersionHold] = field(default_factory=dict)
    script_calls: dict[Any, None] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class CallContext:
    """Where a call comes from; treated as frozen. `chain`: the models that wait for its
    answer, the client's first and the caller last."""

    chain: tuple[str, ...]
    root: CallRoot
    is_outermost: bool = False

    def end(self) -> None:
        """Let go of what the calls have kept, if the client's own request made this. Idempotent."""
        if self.is_outermost:
            versions = self.root.versions
            while versions:
                versions.popitem()[1].release()


@dataclass(slots=True, eq=False)
class InferRequest:
    """One inference request, validated and routed; treated as frozen once built.

    `rows`: leading dimension of its inputs (1 when the model does not batch). `shape_key`: equal
    for two requests exactly when their inputs may be stacked (same names, same shapes behind the
    batch dimension). `deadline_ns`, `arrived_ns`: on `time.monotonic_ns`; deadline 0 is none.
    `priority`: 0 is the model's default, else 1 (first) and up. `timeout_us`: as the client gave
    it, 0 if not. `principal`: whose permission it came in by, None for anybody. `trace`: None while
    it is not traced.
    `number`, `part`: as `server.request_ids` has them; `arm`: of a route, as the response says it;
    `client_id`: which the client gave beside the body. `context`: of a call from inside the server
    (`schedulers.calls`), None for a client's request.
    """

    model: str
    version: int
    inputs: Tensors
    rows: int
    shape_key: object
    arrived_ns: int
    id: str = ""
    requested_outputs: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=lambda: NO_PARAMETERS)
    priority: int = 0
    timeout_us: int = 0
    deadline_ns: int = 0
    sequence: Sequence | None = None
    principal: Principal | None = None
    trace: Any = None
    number: int = 0
    part: int = 0
    arm: str = ""
    client_id: str = ""
    context: CallContext | None = None

    @property
    def correlation_id(self) -> int | str:
        return self.sequence.key if self.sequence else 0


@dataclass(slots=True, eq=False)
class InferResponse:
    """One response to one request; treated as frozen. `last`: no other follows."""

    id: str
    model: str
    version: int
    outputs: Tensors
    parameters: Mapping[str, Any] = field(default_factory=lambda: NO_PARAMETERS)
    last: bool = True
