"""What travels: the request inwards, the response outwards. Neither knows of any wire.

Built once by a codec in `server`, after routing; handed to a scheduler by `server.dataplane`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from backends.seam import Tensors

NO_PARAMETERS: Mapping[str, Any] = {}


class Sequence(NamedTuple):
    """Membership of a sequence: its key, and whether this request starts or ends it."""

    key: int | str
    start: bool
    end: bool


@dataclass(slots=True, eq=False)
class InferRequest:
    """One inference request, validated and routed; treated as frozen once built.

    `rows`: leading dimension of its inputs (1 when the model does not batch). `shape_key`: equal
    for two requests exactly when their inputs may be stacked (same names, same shapes behind the
    batch dimension). `deadline_ns`, `arrived_ns`: on `time.monotonic_ns`; deadline 0 is none.
    `priority`: 0 is the model's default, else 1 (first) and up. `timeout_us`: as the client gave
    it, 0 if not. `principal`, `trace`: None until the features that set them exist.
    `number`, `part`: as `server.request_ids` has them; `arm`: of a route, as the response says it;
    `client_id`: which the client gave beside the body.
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
    principal: str | None = None
    trace: Any = None
    number: int = 0
    part: int = 0
    arm: str = ""
    client_id: str = ""

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
