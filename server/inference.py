"""One inference request at a front end, as the data plane sees it.

A front end makes one of each request that it has parsed and hands it to `DataPlane.infer`, which
asks it for what the steps need and notes on it who answers. All else that a front end knows of its
request (connection, form of the answer) stays with it.
"""

from collections.abc import Iterable, Mapping

from control.access.scopes import Principal
from schedulers.request import CallContext, Sequence
from server.access.token_holder import PermissionHolder
from server.codec.forwarding import HeaderForwarding
from server.codec.output_format import InferBody
from server.request_ids import next_number
from server.routing.table import CompiledRoute, Target
from server.served_version import ServedVersion
from server.trace.record import RequestReceipt, Trace


class Inference:
    """What is common to all protocols; times are on `time.monotonic_ns`. No abstract base class:
    such are slow to ask whether something is one of theirs, which connections do with each request.

    `model`, `version`: as the client wrote them, "" for any version. `holder`: whose token is yet
    to be held against the model, None where nobody's is or the head of the request was enough to
    decide. `arrived_ns`, `deadline_ns`: set when all of it is there; a deadline of 0 is none.
    `forwarding`: which headers become parameters.
    `number`, `part`: as `server.request_ids` has them; `client_id`: which came beside the body.
    `principal`: whose permission it came in by. `context`: of a call from inside the server.
    `target`, `trace`: noted by the data plane. It ends the trace of what it refuses, and whoever
    writes the answer all others.
    """

    context: CallContext | None = None

    __slots__ = (
        "arrived_ns",
        "client_id",
        "deadline_ns",
        "forwarding",
        "holder",
        "model",
        "number",
        "part",
        "principal",
        "target",
        "trace",
        "version",
    )

    def __init__(
        self,
        model: str,
        version: str,
        forwarding: HeaderForwarding | None = None,
        arrived_ns: int = 0,
        deadline_ns: int = 0,
        number: int = 0,
    ) -> None:
        self.model = model
        self.version = version
        self.forwarding = forwarding
        self.arrived_ns = arrived_ns
        self.deadline_ns = deadline_ns
        self.number = number or next_number()
        self.part = 0
        self.client_id = ""
        self.holder: PermissionHolder | None = None
        self.principal: Principal | None = None
        self.target: Target | None = None
        self.trace: Trace | None = None

    def held_by(self, holder: PermissionHolder | None) -> None:
        """Note whose token it came with."""
        self.holder = holder
        self.principal = None if holder is None else holder.principal

    @property
    def arm(self) -> str:
        """Which arm of a route answers, as the response says it; "" without a route."""
        return "" if self.target is None else self.target.label

    def refused(self, error: Exception) -> None:
        """Told by the data plane why it did not take it: end its trace, if there is one. Protocols
        whose traces also time the answer to a refused request end it themselves."""
        if self.trace is not None:
            self.trace.failed(error)
            self.trace.end()

    # asked only of a request to a route: see `server.routing.routing.RoutableRequest`

    def unit_in_header(self, route: CompiledRoute) -> str:
        raise NotImplementedError

    def labels(self, route: CompiledRoute) -> Mapping[str, str]:
        raise NotImplementedError

    def parameter(self, name: str) -> object:
        return None

    def sequence(self) -> Sequence | None:
        return None

    # asked of each

    def decode(self, served: ServedVersion) -> InferBody:
        """Its body as this version takes it. Raises what refuses it, Unsupported where the
        protocol cannot carry what the version answers."""
        raise NotImplementedError

    # asked only where the feature is on

    def receipt(self) -> RequestReceipt:
        """How it came in, for its trace."""
        raise NotImplementedError

    def text_headers(self) -> Iterable[tuple[str, str]]:
        """Its headers, for those to be forwarded."""
        raise NotImplementedError
