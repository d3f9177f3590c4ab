"""What is kept of requests that have ended, and found again."""

import time
from typing import Any

import pytest

from backends.errors import ExecutionFailed
from control.gateways.queries import AnsweredRequest, RequestsQuery
from schedulers.errors import Cancelled, QueueFull
from schedulers.policy.queue import Ticket
from schedulers.request import InferRequest
from schedulers.request_groups import GroupMember, GroupTicket
from server.errors import UnknownModel
from server.history import history as module
from server.history.history import LONGEST_ID, MOST_WAITING, RequestHistory
from server.inference import Inference
from server.request_ids import id_text

MS = 1_000_000
ARM = "digits@2;candidate;rollout=ab"


def ended(
    history: RequestHistory,
    number: int,
    ago_s: float = 1.0,
    compute_ms: int = 10,
    error: Exception | None = None,
    **fields: Any,
) -> None:
    """A request that came `ago_s` ago and was computed for about `compute_ms` until now."""
    now_ns = time.monotonic_ns()
    usual = {"model": "digits", "version": 1, "inputs": {}, "rows": 1, "shape_key": None}
    asked = InferRequest(**{**usual, **fields}, arrived_ns=now_ns - int(ago_s * 1e9), number=number)
    ticket = Ticket(asked)
    ticket.started_ns, ticket.instance = now_ns - compute_ms * MS, 3
    ticket.error = error
    history.ended(ticket)


def found(history: RequestHistory, **query: object) -> tuple[AnsweredRequest, ...]:
    return history.answer(RequestsQuery(**query)).items  # type: ignore[arg-type]


def numbers(history: RequestHistory, **query: object) -> list[int]:
    return [int(one.id.rpartition("-")[2], 16) for one in found(history, **query)]


def test_what_was_answered_is_told_as_it_was() -> None:
    history = RequestHistory()
    ended(history, 7, version=2, arm=ARM, client_id="mine")
    (one,) = found(history, id=id_text(7))
    assert (one.model, one.version, one.arm, one.instance) == ("digits", 2, ARM, 3)
    assert (one.outcome, one.error, one.client_id) == ("ok", "", "mine")
    assert one.at == pytest.approx(time.time() - 1, abs=0.5)
    assert one.compute_s == pytest.approx(0.01, abs=0.5)
    assert one.queue_s == pytest.approx(0.99, abs=0.01)


def test_each_request_of_a_group_is_told_by_its_own_number_and_end() -> None:
    history, now_ns = RequestHistory(), time.monotonic_ns()
    asked = [
        InferRequest("m", 1, {}, 1, None, now_ns, number=one, client_id=f"c{one}")
        for one in range(1, 4)
    ]
    members = [GroupMember(Ticket(one), at, {}, 1, ()) for at, one in enumerate(asked)]
    group = GroupTicket(InferRequest("digits", 2, {}, 3, None, now_ns), members)
    group.started_ns, group.instance = now_ns, 3
    group.dropped.append(group.members.pop())
    group.recorder = history.group_ended
    group.finish([{}, ExecutionFailed("no luck")])
    told = {one.client_id: one for one in found(history, model="digits", version=2)}
    assert [told[one].id for one in ("c1", "c2", "c3")] == [id_text(one) for one in (1, 2, 3)]
    assert [told[one].outcome for one in ("c1", "c2", "c3")] == ["ok", "failed", "cancelled"]
    assert [told[one].instance for one in ("c1", "c2", "c3")] == [3, 3, None]
    assert told["c2"].error == "no luck"


@pytest.mark.parametrize("way", ["ended", "group", "refused"])
def test_an_id_of_any_length_is_cut_before_it_waits(way: str) -> None:
    history, long = RequestHistory(), "x" * 10_000
    if way == "refused":
        inference = Inference("digits", "", None, time.monotonic_ns(), 0, 7)
        inference.client_id = long
        history.refused(inference, 0, UnknownModel("no"))
    elif way == "ended":
        ended(history, 7, client_id=long)
    else:
        asked = InferRequest("m", 1, {}, 1, None, time.monotonic_ns(), client_id=long)
        group = GroupTicket(asked, [GroupMember(Ticket(asked), 0, {}, 1, ())])
        group.recorder = history.group_ended
        group.finish([{}])
    assert max(len(one) for one in history._waiting if isinstance(one, str)) == LONGEST_ID
    (one,) = found(history)
    assert one.client_id == "x" * LONGEST_ID


def test_each_way_to_end_has_its_word() -> None:
    history = RequestHistory()
    ended(history, 1, error=Cancelled("the client has gone"))
    ended(history, 2, error=QueueFull("the queue is full"))
    refused = Inference("nobody", "", number=3)
    history.refused(refused, 0, UnknownModel("there is no such model" + "!" * 500))
    ended(history, 4)
    outcomes = {one.id: (one.outcome, one.error) for one in found(history)}
    assert outcomes[id_text(1)] == ("cancelled", "")
    assert outcomes[id_text(2)] == ("failed", "the queue is full")
    outcome, error = outcomes[id_text(3)]
    assert (outcome, len(error)) == ("refused", 200)
    assert numbers(history, outcome="refused", model="nobody") == [3]
    assert numbers(history) == [4, 3, 2, 1]


def test_filters_narrow_together() -> None:
    history = RequestHistory()
    ended(history, 1, compute_ms=5)
    ended(history, 2, version=2, arm=ARM, compute_ms=500)
    ended(history, 3, version=2, arm=ARM, ago_s=100)
    ended(history, 4, version=2, arm="digits@2;stable", compute_ms=300, ago_s=2)
    now = time.time()
    assert numbers(history, version=2) == [4, 3, 2]
    assert numbers(history, arm="candidate") == numbers(history, arm=ARM) == [3, 2]
    assert numbers(history, since=now - 50, version=2) == [4, 2]
    assert numbers(history, until=now - 50) == [3]
    assert numbers(history, least_s=1.5) == [4, 3]
    assert numbers(history, slowest=True, limit=2) == [3, 4]
    assert numbers(history, model="faces") == numbers(history, id="nobody") == []
    answer = history.answer(RequestsQuery(version=2, limit=1))
    assert (len(answer.items), answer.found, answer.kept) == (1, 3, 4)


def test_what_is_too_old_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEEP_S", 60)  # a machine may have run for less than 15 minutes
    history = RequestHistory()
    ended(history, 1, ago_s=65)
    ended(history, 2, ago_s=55)
    assert numbers(history) == [2]


def test_many_names_of_models_that_are_none_begin_the_history_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_TARGETS", 10)
    monkeypatch.setattr(module, "_MOST_VALUES", 5 * module._FIELDS)
    history = RequestHistory()
    for number in range(1, 26):
        history.refused(Inference(f"model-{number}", "", number=number), 0, UnknownModel("none"))
    ended(history, 26)
    assert [(one.id, one.model) for one in found(history)] == [
        (id_text(26), "digits"),
        *((id_text(number), f"model-{number}") for number in range(25, 20, -1)),
    ]


def test_none_is_lost_between_the_times_when_records_are_made() -> None:
    history = RequestHistory()
    for number in range(2 * MOST_WAITING + 5):
        ended(history, number)
        if number == 700:
            assert history.answer(RequestsQuery()).kept == 701
    assert history.answer(RequestsQuery()).kept == 2 * MOST_WAITING + 5
