"""The gateway's samples: which models are sampled now, and what was kept of their requests.

The data plane asks nothing of it while no model is sampled. Nothing here
outlives the process: a new one samples nothing.
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import asdict
from heapq import merge

from msgspec import Raw

from control.access.scopes import id_of
from control.gateways.queries import (
    Query,
    SampledModelState,
    SampledRequest,
    SampledRequests,
    SamplesQuery,
    SamplingQuery,
    SamplingState,
    StartSampling,
    StopSampling,
)
from schedulers.errors import Cancelled
from schedulers.reply import Reply
from schedulers.request import InferRequest
from server.errors import status_of
from server.samples.ring import SampleRing, SamplingRule
from server.samples.tensor_summary import summary_of

MOST_MODELS = 16
MOST_S = 24 * 3600.0
MOST_BYTES = 32 * 2**20
KEEP_S = 3600.0
"""How long what was kept can be found after its model is sampled no more."""

MOST_ROWS, MOST_ANSWER_BYTES = 500, 8 * 2**20
LONGEST_ERROR = 500


class Samples:
    """All of a gateway's; on the loop's thread. `changed` is called when `on` may be another."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self.on = False
        self._changed = changed
        self._models: dict[str, SampledModel] = {}
        self._number = 0

    # the data plane's

    def begin(self, request: InferRequest, arm: str, decoupled: bool) -> "Sample | None":
        """Before a request is submitted: its sample, if it is to be kept. `arm` as answers say it,
        "" without a route."""
        one = self._models.get(request.model)
        if one is None or not one.active or random.random() * 100 >= one.terms.percent:
            return None
        if not one.ring.may_take(time.monotonic()):
            return None
        self._number += 1
        return Sample(one, self._number, request, arm, decoupled)

    # the control process's

    def answer(self, query: Query) -> SamplingState | SampledRequests:
        """What was asked for. Raises ValueError for a query that is not about samples."""
        problem = ""
        match query:
            case SamplesQuery():
                limit = min(query.limit, MOST_ROWS)
                return SampledRequests(tuple(self._rows(query.model, query.id, limit)))
            case SamplingQuery():
                pass
            case StartSampling():
                problem = self._start(query)
            case StopSampling():
                self._end(query.model)
            case _:
                raise ValueError(f"samples do not answer a {type(query).__name__}")
        states = (self._models[name].state() for name in sorted(self._models))
        return SamplingState(tuple(states), problem)

    def _start(self, query: StartSampling) -> str:
        """Why it cannot be, "" if it is."""
        model, seconds = query.model, min(query.seconds, MOST_S)
        terms = SamplingRule(
            model,
            query.percent,
            min(query.max_bytes, MOST_BYTES),
            query.values,
            query.by,
            time.time() + seconds,
        )
        one = self._models.get(model)
        if one is None:
            if not self._has_room():
                return f"{MOST_MODELS} models are sampled already; stop one of them first"
            one = self._models[model] = SampledModel(terms)
        one.terms, one.active = terms, True
        one.later(seconds, self._end, model)
        self.on = True
        self._changed()
        return ""

    def _has_room(self) -> bool:
        """Models that are no longer sampled give way, the earliest first."""
        if len(self._models) >= MOST_MODELS:
            ended = next((name for name, one in self._models.items() if not one.active), None)
            if ended is not None:
                self._forget(ended)
        return len(self._models) < MOST_MODELS

    def _end(self, model: str) -> None:
        one = self._models.get(model)
        if one is None or not one.active:
            return
        one.active = False
        self.on = any(each.active for each in self._models.values())
        self._changed()
        one.later(KEEP_S, self._forget, model)

    def _forget(self, model: str) -> None:
        self._models.pop(model).cancel()

    def _rows(self, model: str, identity: str, limit: int) -> list[Raw]:
        """The newest first, packed; an id finds all that begin with it."""
        chosen = [one.ring for name, one in self._models.items() if model in ("", name)]
        found: list[Raw] = []
        size_bytes = 0
        for one in merge(*(ring.newest_first() for ring in chosen), reverse=True):
            if not one.id.startswith(identity):
                continue
            size_bytes += len(one.packed)
            if len(found) == limit or (found and size_bytes > MOST_ANSWER_BYTES):
                break
            found.append(Raw(one.packed))
        return found


class SampledModel:
    """One model: on which terms it is or was sampled, and what was kept. `timer` ends the one,
    and later forgets the other."""

    def __init__(self, terms: SamplingRule) -> None:
        self.terms = terms
        self.active = True
        self.ring = SampleRing()
        self.timer: asyncio.TimerHandle | None = None

    def later(self, seconds: float, do: Callable[[str], None], model: str) -> None:
        """In place of what was to be done before."""
        self.cancel()
        self.timer = asyncio.get_running_loop().call_later(seconds, do, model)

    def cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def state(self) -> SampledModelState:
        return SampledModelState(
            **asdict(self.terms),
            active=self.active,
            kept=len(self.ring),
            taken=self.ring.taken,
            size_bytes=self.ring.size_bytes,
        )


class Sample:
    """One request on its way; kept when it ends or is refused."""

    __slots__ = ("_arm", "_at", "_decoupled", "_inputs", "_number", "_of", "_request", "_values")

    def __init__(
        self, of: SampledModel, number: int, request: InferRequest, arm: str, decoupled: bool
    ) -> None:
        self._of = of
        self._number = number
        self._request = request
        self._arm = arm
        self._values = of.terms.values
        self._decoupled = decoupled
        self._at = time.time()
        # A client may change its shared memory.
        self._inputs = summary_of(request.inputs, self._values)

    def refused(self, error: Exception) -> None:
        """No scheduler took it."""
        self._keep("refused", error, None)

    def ended(self, reply: Reply) -> None:
        error = reply.error
        state = "ok" if error is None else "cancelled" if isinstance(error, Cancelled) else "failed"
        self._keep(state, error, reply)

    def _keep(self, state: str, error: Exception | None, reply: Reply | None) -> None:
        request = self._request
        answer = reply.unread if reply is not None and not self._decoupled else None
        cancelled = state == "cancelled"
        sample = SampledRequest(
            number=self._number,
            id=request.id[:255],
            at=self._at,
            model=request.model,
            version=request.version,
            arm=self._arm,
            principal=id_of(request.principal),
            state=state,
            status=200 if error is None else 0 if cancelled else status_of(error).http,
            error="" if error is None or cancelled else str(error)[:LONGEST_ERROR],
            took_s=(time.monotonic_ns() - request.arrived_ns) * 1e-9,
            rows=request.rows,
            streamed=self._decoupled,
            inputs=self._inputs,
            outputs=summary_of(answer.outputs, self._values) if answer is not None else [],
        )
        self._of.ring.keep(sample, self._of.terms.max_bytes)
