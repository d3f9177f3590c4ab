"""Which version, arm and instance answered a request, how long it took there, and how it ended.

Always on: every request that comes to the data plane is kept when it has ended, until MOST_RECORDS
others have, or KEEP_S have passed. Nothing of its tensors is.
"""

import time

import numpy

from control.gateways.queries import AnsweredRequest, AnsweredRequests, RequestsQuery
from schedulers.errors import Cancelled
from schedulers.policy.queue import Ticket
from schedulers.reply import Reply
from server.errors import client_text
from server.history.ring import NOT_EXECUTED, Places, RequestRing
from server.inference import Inference
from server.request_ids import id_text, number_in

KEEP_S = 900
MOST_ROWS = 500
LONGEST_ID, LONGEST_ERROR, LONGEST_NAME = 128, 200, 255
OUTCOMES = ("ok", "failed", "refused", "cancelled")
MOST_TARGETS = 20_000
"""Of versions and arms there were, and of names that are no model's; after so many the history
begins anew."""

_OK, _FAILED, _REFUSED, _CANCELLED = range(4)
_Target = tuple[str, int, str]
"""Model, version and the arm as responses say it."""


class RequestHistory:
    """One gateway's; on the loop's thread."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._ring = RequestRing()
        self._codes: dict[_Target, int] = {}
        self._targets: list[_Target] = []

    # the data plane's

    def ended(self, reply: Reply) -> None:
        """A request that a scheduler took; `reply` is its Ticket."""
        assert isinstance(reply, Ticket)
        request, started_ns, error = reply.request, reply.started_ns, reply.error
        arrived_ns, now_ns = request.arrived_ns, time.monotonic_ns()
        client_id = request.client_id
        target = (request.model, request.version, request.arm)
        if error is None:
            outcome, text = _OK, ""
        elif isinstance(error, Cancelled):
            outcome, text = _CANCELLED, ""
        else:
            outcome, text = _FAILED, client_text(error)[:LONGEST_ERROR]
        code = self._codes.get(target)
        self._ring.add(
            request.number,
            request.part,
            self._new_code(target) if code is None else code,
            arrived_ns,
            ((started_ns or now_ns) - arrived_ns) // 1000,
            (now_ns - started_ns) // 1000 if started_ns else 0,
            outcome,
            reply.instance if started_ns else NOT_EXECUTED,
            client_id if len(client_id) <= LONGEST_ID else client_id[:LONGEST_ID],
            text,
        )

    def refused(self, inference: Inference, version: int, error: Exception) -> None:
        """A request that came to no scheduler; `version` 0 where none was found."""
        now_ns = time.monotonic_ns()
        arrived_ns = inference.arrived_ns or now_ns
        target = (inference.model[:LONGEST_NAME], version, inference.arm)
        code = self._codes.get(target)
        self._ring.add(
            inference.number,
            inference.part,
            self._new_code(target) if code is None else code,
            arrived_ns,
            (now_ns - arrived_ns) // 1000,
            0,
            _REFUSED,
            NOT_EXECUTED,
            inference.client_id[:LONGEST_ID],
            client_text(error)[:LONGEST_ERROR],
        )

    def _new_code(self, target: _Target) -> int:
        if len(self._targets) >= MOST_TARGETS:
            self._begin()
        code = self._codes[target] = len(self._targets)
        self._targets.append(target)
        return code

    # the control process's

    def answer(self, query: RequestsQuery) -> AnsweredRequests:
        """The newest first."""
        ring, now_ns, now = self._ring, time.monotonic_ns(), time.time()
        places = self._chosen(query, now_ns)
        found = []
        for place in places[: min(query.limit, MOST_ROWS)]:
            record = ring.record(int(place))
            model, version, arm = self._targets[record.target]
            ours = id_text(record.number, record.part)
            found.append(
                AnsweredRequest(
                    ours,
                    "" if record.client_id == ours else record.client_id,
                    now - (now_ns - record.arrived_ns) * 1e-9,
                    model,
                    version,
                    arm,
                    None if record.instance == NOT_EXECUTED else record.instance,
                    record.queue_us * 1e-6,
                    record.compute_us * 1e-6,
                    OUTCOMES[record.outcome],
                    record.error,
                )
            )
        return AnsweredRequests(tuple(found), len(places), len(ring))

    def _chosen(self, query: RequestsQuery, now_ns: int) -> Places:
        ring, now = self._ring, time.time()
        columns, places = ring.columns(), ring.places()
        arrived_ns = columns["arrived_ns"]

        def ns_of(moment: float) -> int:
            return max(0, now_ns - int((now - moment) * 1e9))

        since = max(query.since or 0.0, now - KEEP_S)
        places = places[arrived_ns[places] >= ns_of(since)]
        if query.until is not None:
            places = places[arrived_ns[places] < ns_of(query.until)]
        if query.outcome:
            places = places[columns["outcome"][places] == OUTCOMES.index(query.outcome)]
        if query.least_s:
            took_us = columns["queue_us"][places].astype("u8") + columns["compute_us"][places]
            places = places[took_us >= int(query.least_s * 1e6)]
        if query.model or query.version or query.arm:
            codes = [code for code, one in enumerate(self._targets) if _fits(one, query)]
            places = places[numpy.isin(columns["target"][places], codes)]
        if query.id:
            places = self._with_id(query.id, places)
        if query.slowest:
            took_us = columns["queue_us"][places].astype("u8") + columns["compute_us"][places]
            places = places[numpy.argsort(took_us, kind="stable")[::-1]]
        return places

    def _with_id(self, text: str, places: Places) -> Places:
        ours = number_in(text)
        if ours is None:
            return self._ring.of_client(text, places)
        number, part = ours
        columns = self._ring.columns()
        found: Places = places[columns["number"][places] == number]
        if part:
            found = found[columns["part"][found] == part]
        return found


def _fits(target: _Target, query: RequestsQuery) -> bool:
    model, version, arm = target
    return (
        query.model in ("", model)
        and query.version in (0, version)
        and query.arm in ("", arm, arm_name(arm))
    )


def arm_name(label: str) -> str:
    """MODEL@VERSION;ARM;… as responses say it."""
    parts = label.split(";")
    return parts[1] if len(parts) > 1 else ""
