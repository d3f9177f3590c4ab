"""The seam for calls from inside the server: a scheduler or an instance asks another model.

An ensemble calls its steps here, a python model the models of its script. A call goes the whole
way of a client's request (`server.dataplane`), implemented by `server.model_calls`; whoever calls
is handed a `ModelCaller` when it is built, and knows nothing of what is behind.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from backends.seam import Tensors
from control.access.scopes import Principal
from schedulers.callee_signature import CalleeSignature
from schedulers.errors import CallsTooDeep, SchedulingError
from schedulers.policy.queue import Ticket
from schedulers.reply import Reply
from schedulers.request import NO_PARAMETERS, CallContext, CallRoot, InferRequest
from schedulers.request import Sequence as SequenceKey
from schedulers.request_groups import GroupMember, GroupTicket

MOST_DEPTH = 16
"""Models that may be waiting for each other's answers on behalf of one request. Chains of models
are three or four long; what is longer than this calls itself in a circle."""


@dataclass(slots=True, eq=False)
class ModelCall:
    """One call; treated as frozen once built, as requests are. Make it with `call_from`, which
    passes on what belongs to the calling request.

    `model`: a public name as a client would write it: a model's, a route's or MODEL@ALIAS.
    `version`: "" for any. `inputs`: as the callee takes them; they are not copied, and nobody
    writes to them until the Reply has ended. `requested_outputs`: empty for all. `parameters`:
    the callee's own, without Triton's. `priority`, `timeout_us`, `deadline_ns`, `sequence`, `id`,
    `number`, `part`, `client_id`: as of `InferRequest`.

    `principal`: whose request it is done for, None for anybody. `covered`: the permission to use
    the caller is enough; otherwise the principal must be allowed to infer with `model`.
    `keeps_version`: uses the version of `model` that earlier such calls of the root have used,
    and keeps it from closing until the root ends; otherwise the one that serves now.
    `trace`: of the calling request, None while it is not traced. `context`: of the call.
    """

    model: str
    inputs: Tensors
    context: CallContext
    version: str = ""
    requested_outputs: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=lambda: NO_PARAMETERS)
    priority: int = 0
    timeout_us: int = 0
    deadline_ns: int = 0
    sequence: SequenceKey | None = None
    id: str = ""
    principal: Principal | None = None
    covered: bool = False
    keeps_version: bool = False
    trace: Any = None
    number: int = 0
    part: int = 0
    client_id: str = ""


Callee = tuple[str, str]
"""Public name and version text of what is called."""


class ModelCaller(Protocol):
    """Whatever carries calls out. Every method belongs to the loop's thread."""

    def signatures(self, model: str, version: str) -> Sequence[CalleeSignature]:
        """What a callee takes and answers that serves now: one of a model, of a route one of each
        arm. The same objects until another version serves. Raises UnknownModel, NotReady."""

    def keep(self, context: CallContext, callees: Iterable[Callee]) -> None:
        """Let calls that keep versions use those that serve now, however much later they come. A
        route's is found by the first call; of what does not serve, the call will say why."""

    def group_callee(self, context: CallContext, callee: Callee) -> "GroupCallee | None":
        """The version that `keep` keeps, where it takes calls of several requests as one group;
        None where each has to be called by itself."""

    def call(self, call: ModelCall) -> Reply:
        """Accept at once or raise; never blocks. If it raises, nothing has happened; if it
        returns, the Reply will end, and `cancel` on it reaches whatever runs.

        Raises CallsTooDeep, and what refuses a client's request: of `server.errors` UnknownModel,
        NotReady, InvalidRequest (in the words a client would read) and Forbidden, and QueueFull.
        """


class GroupCallee(Protocol):
    """A loaded version that is called for several requests at once, each of which is without a
    trace, a sequence and parameters. `most_rows`: of all requests of a group. Every method belongs
    to the loop's thread."""

    most_rows: int

    def rows_of(self, ticket: Ticket, inputs: Tensors, requested: tuple[str, ...]) -> int:
        """How many rows these inputs have, for the request that `ticket` stands for. Raises
        InvalidRequest in the words a client would read."""

    def submit(
        self, members: list[GroupMember], requested: tuple[str, ...]
    ) -> tuple[GroupTicket, Sequence[tuple[GroupMember, Exception]]]:
        """As `ModelCaller.call`; with the members that it refused and why. The ticket then has all
        others, maybe none. They are alike in priority and timeout."""


class NoCaller:
    """The `ModelCaller` where there is nobody to call."""

    def signatures(self, model: str, version: str) -> Sequence[CalleeSignature]:
        raise SchedulingError(_nobody(model))

    def keep(self, context: CallContext, callees: Iterable[Callee]) -> None: ...

    def group_callee(self, context: CallContext, callee: Callee) -> GroupCallee | None:
        return None

    def call(self, call: ModelCall) -> Reply:
        raise SchedulingError(_nobody(call.model))


def _nobody(model: str) -> str:
    return f"'{model}' cannot be called: this program serves no models"


def context_of(request: InferRequest) -> CallContext:
    """The context of the calls that `request` causes; make one for each request and use it for
    all of them, so that a route sends them all to one arm. Whoever makes it ends it with
    `CallContext.end` after the last of its calls. Raises CallsTooDeep.
    """
    outer = request.context
    if outer is None:
        return CallContext((request.model,), CallRoot(), is_outermost=True)
    chain = (*outer.chain, request.model)
    if len(chain) >= MOST_DEPTH:
        raise CallsTooDeep(_too_deep(chain))
    return CallContext(chain, outer.root)


def call_from(
    request: InferRequest, context: CallContext, model: str, inputs: Tensors, **terms: Any
) -> ModelCall:
    """A call on behalf of `request`, whose deadline, priority, timeout, sequence, id, parameters,
    principal and trace it takes over, but for `terms`, which are fields of ModelCall."""
    call = ModelCall(
        model,
        inputs,
        context,
        "",
        (),
        request.parameters,
        request.priority,
        request.timeout_us,
        request.deadline_ns,
        request.sequence,
        request.id,
        request.principal,
        False,
        False,
        request.trace,
        request.number,
        request.part,
        request.client_id,
    )
    for name, value in terms.items():
        setattr(call, name, value)
    return call


def _too_deep(chain: tuple[str, ...]) -> str:
    """Names the circle that the chain goes round in, if it does."""
    last = chain[-1]
    before = [place for place, name in enumerate(chain[:-1]) if name == last]
    if not before:
        return (
            f"model '{last}' may not call another model: {len(chain)} models are calling each "
            f"other for this request ({_arrows(chain)}), and at most {MOST_DEPTH} may"
        )
    circle = chain[before[-1] :]
    return (
        f"model '{last}' may not call another model: the models call each other in a circle, "
        f"{_arrows(circle)}, {len(chain)} deep for this request, and at most {MOST_DEPTH} may"
    )


def _arrows(names: tuple[str, ...]) -> str:
    return " → ".join(f"'{name}'" for name in names)
