"""The requests that a model executes while it calls others: their calls, and what they pass on."""

from collections.abc import Callable, Iterable, Sequence

from backends.seam import Member
from control.access.scopes import Principal
from schedulers.calls import context_of
from schedulers.request import CallContext, CallRoot, InferRequest


class CausingRequest:
    """A request of which calls were made. `request`: the member, where it is one; a warm-up's is
    one too. `left`: its execution is over; `calls`: those of its calls that have no answer yet, by
    what cancels each."""

    __slots__ = ("calls", "cancelled", "context", "left", "member", "request")

    def __init__(self, member: Member | None, model: str) -> None:
        """`member`: None for a call outside of every execution. A warm-up's request, and a call
        made by nobody's permission, are members without a principal. Raises CallsTooDeep."""
        self.member = member
        self.left = False
        self.cancelled = False
        self.calls: dict[int, Callable[[], None]] = {}
        self.request = member if isinstance(member, InferRequest) else None
        if self.request is not None:
            self.context = context_of(self.request)
        else:
            self.context = CallContext((model,), CallRoot(), is_outermost=True)


class Causes:
    """Those of one worker's life; on the loop's thread."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._causes: dict[int, CausingRequest] = {}

    @property
    def is_empty(self) -> bool:
        return not self._causes

    def of(self, members: Sequence[Member]) -> list[CausingRequest]:
        """What is kept of these requests; one without a request behind it for none. Raises
        CallsTooDeep."""
        if not members:
            return [CausingRequest(None, self._model)]
        return [self._of(member) for member in members]

    def _of(self, member: Member) -> CausingRequest:
        found = self._causes.get(id(member))
        if found is None:
            found = self._causes[id(member)] = CausingRequest(member, self._model)
        return found

    def cancelled(self, member: Member) -> None:
        """Nobody waits for it: cancel those of its calls that are for nobody else."""
        found = self._causes.get(id(member))
        if found is not None:
            found.cancelled = True
            for cancel in list(found.calls.values()):
                cancel()

    def left(self, members: Iterable[Member]) -> None:
        """Their execution is over; what they have kept goes with the last of their calls."""
        for member in members:
            found = self._causes.pop(id(member), None)
            if found is not None:
                found.left = True
                end_if_over(found)

    def close(self) -> None:
        """The worker has gone."""
        self.left([cause.member for cause in self._causes.values() if cause.member is not None])


def end_if_over(cause: CausingRequest) -> None:
    """Let go of what its calls have kept, once nothing can follow."""
    if not cause.calls and (cause.left or cause.member is None):
        cause.context.end()


def principals_of(causes: Iterable[CausingRequest]) -> list[Principal]:
    """Whose requests they are, each once."""
    found = (cause.request.principal for cause in causes if cause.request is not None)
    return list({one.id: one for one in found if one is not None}.values())


def has_nobody(causes: Iterable[CausingRequest]) -> bool:
    """Whether nobody's permission stands behind one of them: an idle model's call, a warm-up's."""
    return any(cause.request is None or cause.request.principal is None for cause in causes)


def latest_deadline_ns(causes: Iterable[CausingRequest]) -> int:
    """Until when somebody waits for any of them; 0 for ever."""
    deadlines = [0 if cause.request is None else cause.request.deadline_ns for cause in causes]
    return 0 if 0 in deadlines else max(deadlines)
