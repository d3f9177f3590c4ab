"""Which version, arm and instance answered a request, how long it took there, and how it ended.

Always on: every request that comes to the data plane is kept when it has ended, until MOST_RECORDS
others have, or KEEP_S have passed. Nothing of its tensors is.
"""

import time
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from typing import Any

import numpy

from control.gateways.queries import AnsweredRequest, AnsweredRequests, RequestsQuery
from schedulers.errors import Cancelled
from schedulers.reply import Reply
from schedulers.request_groups import GroupTicket
from server.errors import client_text
from server.history.ring import NOT_EXECUTED, Places, RequestRing
from server.inference import Inference
from server.request_ids import id_text, number_in

KEEP_S = 900
MOST_ROWS = 500
LONGEST_ERROR, LONGEST_NAME = 200, 255
LONGEST_ID = 128
"""Of a client; whoever hands in a request cuts it to that, and so does what waits here."""
MOST_WAITING = 512
"""Requests that have ended and of which no records are made yet, which takes 0.4 ms for so many."""

OUTCOMES = ("ok", "failed", "refused", "cancelled")
MOST_TARGETS = 20_000
"""Of versions and arms there were, and of names that are no model's; after so many the history
begins anew."""

_now_ns = time.monotonic_ns
_OK, _FAILED, _REFUSED, _CANCELLED = range(4)
_SUCCESS = (_OK, "")
_FIELDS = 11
"""Of what waits to become a record; see `RequestHistory.ended`."""
_MOST_VALUES = MOST_WAITING * _FIELDS
_Target = tuple[str, int, str]
"""Model, version and the arm as responses say it."""


class RequestHistory:
    """One gateway's; on the loop's thread."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._waiting: list[Any] = []
        self._ring = RequestRing()
        self._codes: dict[_Target, int] = {}
        self._targets: list[_Target] = []

    # the data plane's

    def ended(self, reply: Reply) -> None:
        """A request that a scheduler took; `reply` is its Ticket. Between requests the code that
        makes records of it would have left the processor's caches: many are made at once."""
        request, error = reply.request, reply.error  # type: ignore[attr-defined]
        self._waiting += (
            request.number,
            request.part,
            request.model,
            request.version,
            request.arm,
            request.arrived_ns,
            reply.started_ns,
            _now_ns(),
            None if error is None else _outcome(error),
            reply.instance,  # type: ignore[attr-defined]
            request.client_id[:LONGEST_ID],
        )
        if len(self._waiting) >= _MOST_VALUES:
            self._record()

    def refused(self, inference: Inference, version: int, error: Exception) -> None:
        """A request that came to no scheduler; `version` 0 where none was found."""
        now_ns = _now_ns()
        self._waiting += (
            inference.number,
            inference.part,
            inference.model[:LONGEST_NAME],
            version,
            inference.arm,
            inference.arrived_ns or now_ns,
            0,
            now_ns,
            (_REFUSED, client_text(error)[:LONGEST_ERROR]),
            NOT_EXECUTED,
            inference.client_id[:LONGEST_ID],
        )
        if len(self._waiting) >= _MOST_VALUES:
            self._record()

    def group_ended(self, reply: Reply) -> None:
        """A group of requests that a scheduler took; `reply` is its GroupTicket."""
        assert isinstance(reply, GroupTicket)
        request, now_ns = reply.request, _now_ns()
        target = request.model, request.version, "", request.arrived_ns
        common = None if reply.error is None else _outcome(reply.error)
        endings = chain(
            zip_longest(reply.members, reply.results),
            ((member, Cancelled("")) for member in reply.dropped),
        )
        for member, result in endings:
            caused = member.ticket.request
            self._waiting += (
                caused.number,
                caused.part,
                *target,
                0 if isinstance(result, Cancelled) else reply.started_ns,
                now_ns,
                _outcome(result) if isinstance(result, Exception) else common,
                reply.instance,
                caused.client_id[:LONGEST_ID],
            )
        if len(self._waiting) >= _MOST_VALUES:
            self._record()

    def _record(self) -> None:
        """Make records of those that wait."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        columns = [waiting[field::_FIELDS] for field in range(_FIELDS)]
        numbers, parts, models, versions, arms, arrived, started, ended, *rest = columns
        endings, instances, client_ids = rest
        came, at, end = (numpy.array(times, "i8") for times in (arrived, started, ended))
        executed = at > 0
        begun = numpy.where(executed, at, end)
        records = {
            "number": numpy.array(numbers, "i8"),
            "part": numpy.array(parts, "i8"),
            "target": numpy.array(self._codes_of(zip(models, versions, arms, strict=True)), "i8"),
            "arrived_ns": came,
            "queue_us": (begun - came) // 1000,
            "compute_us": (end - begun) // 1000,
            "outcome": numpy.zeros(len(ended), "i8"),
            "instance": numpy.where(executed, instances, NOT_EXECUTED),
        }
        texts: Sequence[str] = [""] * len(ended)
        if endings.count(None) < len(endings):
            outcomes, texts = zip(*(ending or _SUCCESS for ending in endings), strict=True)
            records["outcome"] = numpy.array(outcomes, "i8")
        self._ring.add(records, client_ids, texts)

    def _codes_of(self, targets: Iterable[_Target]) -> list[int]:
        ring, targets = self._ring, list(targets)
        try:
            return list(map(self._codes.__getitem__, targets))
        except KeyError:
            codes = [self._code(target) for target in targets]
        if self._ring is not ring:  # it has begun anew in between: the first codes are no more
            codes = [self._code(target) for target in targets]
        return codes

    def _code(self, target: _Target) -> int:
        code = self._codes.get(target)
        if code is None:
            if len(self._targets) >= MOST_TARGETS:
                self._begin()
            code = self._codes[target] = len(self._targets)
            self._targets.append(target)
        return code

    # the control process's

    def answer(self, query: RequestsQuery) -> AnsweredRequests:
        """The newest first."""
        self._record()
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


def _outcome(error: Exception) -> tuple[int, str]:
    if isinstance(error, Cancelled):
        return _CANCELLED, ""
    return _FAILED, client_text(error)[:LONGEST_ERROR]
