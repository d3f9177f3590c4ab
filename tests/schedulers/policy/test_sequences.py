"""Which sequences live and whose requests run: the pure policy of the sequence batcher."""

import pytest

from backends.errors import ExecutionFailed, SequenceLost
from backends.seam import SEQUENCE_END, SEQUENCE_START
from schedulers.errors import (
    BadSequence,
    Cancelled,
    DeadlineExceeded,
    QueueFull,
    UnknownSequence,
)
from schedulers.policy.merge import MergeRules
from schedulers.policy.queue import NEVER, Ticket
from schedulers.policy.sequences import MOST_LOST, SequenceTable
from schedulers.policy.slots import Key, LiveSequence, SequenceRules
from schedulers.request import Sequence
from support.schedulers import request

IDLE_NS = 1_000
LOST = SequenceLost("gone")


def rules(**more: object) -> SequenceRules:
    given: dict[str, object] = {"direct": True, "slots": 2, "merge": MergeRules(max_rows=2)}
    return SequenceRules(**{"idle_ns": IDLE_NS, "max_waiting": 100, **given, **more})  # type: ignore[arg-type]


def table(lanes: int = 1, **more: object) -> SequenceTable:
    made = SequenceTable(rules(**more))
    for number in range(lanes):
        made.add_lane(number)
    return made


def ask(
    to: SequenceTable,
    key: Key,
    now: int = 0,
    *,
    start: bool = False,
    end: bool = False,
    **more: object,
) -> Ticket:
    ticket = Ticket(request(sequence=Sequence(key, start, end), arrived_ns=now, **more))
    to.admit(ticket, now)
    return ticket


def run(on: SequenceTable, lane: int = 0, now: int = 0) -> tuple[list[LiveSequence], list[Ticket]]:
    """Start what would run now."""
    picked = on.pick(on.lanes[lane], now).sequences
    return picked, on.start(on.lanes[lane], picked)


def keys(picked: list[LiveSequence]) -> list[Key]:
    return [live.key for live in picked]


# what is refused


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"sequence": None}, "must specify a non-zero or non-empty correlation ID"),
        ({"sequence": Sequence(5, False, False)}, "for sequence 5 to model 'm' must specify the"),
        ({"sequence": Sequence("a", False, True)}, "for sequence a to model 'm' must specify the"),
        ({"sequence": Sequence(5, True, False), "rows": 2}, "must specify batch-size 1 due to"),
    ],
)
def test_what_no_sequence_allows_is_refused(facts: dict[str, object], text: str) -> None:
    rows = facts.pop("rows", 1)
    with pytest.raises(BadSequence, match=text):
        table().admit(Ticket(request(int(str(rows)), **facts)), 0)


def test_a_text_is_refused_where_the_model_takes_numbers() -> None:
    with pytest.raises(BadSequence, match="takes TYPE_UINT64"):
        ask(table(numeric_keys="TYPE_UINT64"), "five", start=True)


def test_the_requests_that_wait_are_bounded_in_slots_and_backlog_together() -> None:
    sequences = table(slots=1, max_waiting=2)
    ask(sequences, 1, start=True)
    ask(sequences, 2, start=True)
    with pytest.raises(QueueFull):
        ask(sequences, 3, start=True)
    assert len(sequences) == 2
    assert not sequences.knows(3)


# slots


def test_instances_fill_evenly_and_a_sequence_stays_with_its_slot() -> None:
    sequences = table(lanes=2)
    for key in (1, 2, 3):
        ask(sequences, key, start=True)
    assert [sorted(lane.sequences) for lane in sequences.lanes] == [[0, 1], [0]]
    picked, _ = run(sequences)
    assert [(live.key, live.slot) for live in picked] == [(1, 0), (3, 1)]


def test_the_backlog_is_served_in_order_when_a_sequence_ends() -> None:
    sequences = table(slots=1)
    ask(sequences, 1, start=True, end=True)
    ask(sequences, 2, start=True, end=True)
    ask(sequences, 3, start=True, end=True)
    order = []
    for _ in range(3):
        picked, _ = run(sequences)
        order += keys(picked)
        sequences.finish_well(picked[:1], 0)
    assert order == [1, 2, 3]
    assert len(sequences) == 0


def test_the_same_id_may_start_again_while_its_ended_sequence_still_runs() -> None:
    sequences = table()
    ask(sequences, 1, start=True, end=True)
    first, _ = run(sequences)
    assert not sequences.knows(1)
    ask(sequences, 1, start=True)
    assert sequences.lanes[0].sequences[1].key == 1
    sequences.finish_well(first[:1], 0)
    assert sequences.knows(1)


def test_a_start_on_a_live_id_is_a_conflict_and_takes_over_its_slot() -> None:
    sequences = table()
    ask(sequences, 1, start=True)
    ticket = Ticket(request(sequence=Sequence(1, True, False)))
    assert sequences.admit(ticket, 0)
    assert (len(sequences), sequences.conflicts, sequences.started) == (1, 1, 2)


# direct


def test_sequence_that_begins_anew_elsewhere_is_over_here_and_frees_its_slot() -> None:
    t = table(slots=1)
    ask(t, 1, start=True)
    picked, _ = run(t)
    t.finish_well(picked[:1], 0)
    behind = ask(t, 2, start=True)
    assert t.supersede(1) == []
    assert (len(t), t.conflicts, t.knows(1)) == (1, 1, False)
    assert run(t)[1] == [behind]


def test_what_waits_of_a_sequence_that_begins_anew_elsewhere_still_runs() -> None:
    t = table()
    ask(t, 1, start=True)
    picked, _ = run(t)
    waits = ask(t, 1)
    t.supersede(1)
    assert not t.knows(1)
    t.finish_well(picked[:1], 0)
    picked, tickets = run(t)
    assert tickets == [waits]
    t.finish_well(picked[:1], 0)
    assert len(t) == 0


def test_sequence_that_does_not_live_here_is_superseded_without_effect() -> None:
    t = table()
    ask(t, 1, start=True)
    assert t.supersede(2) == []
    assert (len(t), t.conflicts) == (1, 0)


def test_direct_gives_each_sequence_its_row_and_leaves_absent_rows_empty() -> None:
    sequences = table(slots=4)
    for key in (1, 2, 3):
        ask(sequences, key, start=True)
    picked, _ = run(sequences)
    for live in picked:
        sequences.finish(live, None, 0)
    ask(sequences, 3)
    pick = sequences.pick(sequences.lanes[0], 0)
    assert (keys(pick.sequences), pick.height) == ([3], 3)


def test_direct_executes_requests_of_one_shape_and_the_others_the_next_time() -> None:
    sequences = table(slots=3)
    for key, shape in ((1, "a"), (2, "b"), (3, "a")):
        ask(sequences, key, key, start=True, shape_key=shape)
    first, _ = run(sequences, now=9)
    second, _ = run(sequences, now=9)
    assert (keys(first), keys(second)) == ([1, 3], [2])


def test_direct_waits_for_the_least_share_of_slots_no_longer_than_the_delay() -> None:
    sequences = table(slots=4, least=2, delay_ns=50)
    ask(sequences, 1, 10, start=True)
    lane = sequences.lanes[0]
    assert sequences.pick(lane, 20)[0::2] == ([], 60)
    assert keys(sequences.pick(lane, 60).sequences) == [1]
    ask(sequences, 2, 20, start=True)
    assert keys(sequences.pick(lane, 20).sequences) == [1, 2]


# oldest


def test_oldest_merges_the_oldest_requests_up_to_the_batch_size() -> None:
    sequences = table(direct=False, slots=9)
    for key, arrived in ((1, 30), (2, 10), (3, 20)):
        ask(sequences, key, arrived, start=True)
    pick = sequences.pick(sequences.lanes[0], 40)
    assert (keys(pick.sequences), pick.height) == ([2, 3], 0)


def test_oldest_waits_for_company_as_its_delay_says() -> None:
    merge = MergeRules(max_rows=4, preferred=frozenset({2}), delay_ns=100)
    sequences = table(direct=False, slots=9, merge=merge)
    ask(sequences, 1, 10, start=True)
    assert sequences.pick(sequences.lanes[0], 20).again_ns == 110
    ask(sequences, 2, 15, start=True)
    assert keys(sequences.pick(sequences.lanes[0], 20).sequences) == [1, 2]


def test_a_sequence_runs_one_request_at_a_time_in_order() -> None:
    sequences = table(direct=False)
    tickets = [ask(sequences, 1, start=True), ask(sequences, 1), ask(sequences, 1, end=True)]
    flags = []
    for ticket in tickets:
        picked, running = run(sequences)
        assert running == [ticket]
        assert not sequences.pick(sequences.lanes[0], 0).sequences
        flags.append(picked[0].flags())
        sequences.finish_well(picked[:1], 0)
    assert flags == [SEQUENCE_START, 0, SEQUENCE_END]


# what ends a sequence


def test_an_idle_sequence_is_over_after_its_time_and_its_slot_is_free() -> None:
    sequences = table(slots=1)
    ask(sequences, 1, start=True)
    ask(sequences, 2, start=True, end=True)
    picked, _ = run(sequences)
    sequences.finish_well(picked[:1], 5)
    assert sequences.next_ns == 5 + IDLE_NS
    assert not sequences.expire(4 + IDLE_NS)
    assert sequences.knows(1)
    sequences.expire(5 + IDLE_NS)
    assert (sequences.expired, sequences.knows(1)) == (1, False)
    assert keys(run(sequences)[0]) == [2]
    assert sequences.lanes[0].released == [0]
    with pytest.raises(UnknownSequence, match="must specify the START flag"):
        ask(sequences, 1)


def test_a_sequence_whose_request_runs_or_waits_is_not_idle() -> None:
    sequences = table()
    ask(sequences, 1, start=True)
    run(sequences)
    sequences.expire(50 * IDLE_NS)
    assert sequences.knows(1)


def test_a_timeout_in_the_backlog_cancels_the_whole_sequence() -> None:
    sequences = table(slots=1)
    ask(sequences, 1, start=True)
    late = ask(sequences, 2, 0, start=True, timeout_us=7)
    later = ask(sequences, 2, 0)
    assert sequences.next_ns == 7_000
    refused = sequences.expire(7_000)
    assert [one.ticket for one in refused] == [late, later]
    assert {str(one.error) for one in refused} == {
        "timeout of the corresponding sequence has been expired"
    }
    assert isinstance(refused[0].error, DeadlineExceeded)
    assert not sequences.backlog


def test_a_timeout_does_not_count_once_its_sequence_has_a_slot() -> None:
    sequences = table(slots=1)
    ask(sequences, 1, 0, start=True, timeout_us=1)
    assert not sequences.expire(10_000)


def test_a_deadline_in_a_slot_ends_the_sequence_whose_state_would_lack_a_step() -> None:
    sequences = table()
    ask(sequences, 1, start=True)
    picked, _ = run(sequences)
    late = ask(sequences, 1, deadline_ns=40)
    behind = ask(sequences, 1)
    refused = {one.ticket: str(one.error) for one in sequences.expire(40)}
    assert refused == {
        late: "Request timeout expired",
        behind: "timeout of the corresponding sequence has been expired",
    }
    assert not sequences.finish_well(picked[:1], 41)
    assert not sequences.knows(1)


def test_a_cancelled_request_that_has_not_run_ends_its_sequence() -> None:
    sequences = table()
    gone = ask(sequences, 1, start=True)
    behind = ask(sequences, 1)
    gone.cancel()
    refused = sequences.drop_cancelled(sequences.lanes[0])
    assert [one.ticket for one in refused] == [gone, behind]
    assert all(isinstance(one.error, Cancelled) for one in refused)
    assert not sequences.knows(1)


def test_a_first_request_that_fails_ends_its_sequence_and_a_later_one_does_not() -> None:
    sequences = table()
    ask(sequences, 1, start=True)
    ask(sequences, 2, start=True)
    behind = ask(sequences, 1)
    picked, _ = run(sequences)
    refused = sequences.finish(picked[0], ExecutionFailed("no"), 0)
    assert [one.ticket for one in refused] == [behind]
    assert not sequences.knows(1)
    sequences.finish(picked[1], None, 0)
    ask(sequences, 2)
    (live,), _ = run(sequences)
    sequences.finish(live, ExecutionFailed("no"), 0)
    assert sequences.knows(2)


def test_with_its_instance_a_sequence_is_lost_and_its_client_is_told_until_it_starts_again() -> (
    None
):
    sequences = table()
    ask(sequences, 1, start=True)
    picked, _ = run(sequences)
    behind = ask(sequences, 1)
    refused = sequences.lose(sequences.lanes[0], LOST, 0)
    assert [(one.ticket, one.error) for one in refused] == [(behind, LOST)]
    assert not sequences.finish(picked[0], LOST, 0)
    with pytest.raises(SequenceLost, match="gone"):
        ask(sequences, 1)
    ask(sequences, 1, start=True)
    assert sequences.lost == 1


def test_no_sequence_begins_on_an_instance_that_is_not_usable() -> None:
    sequences = table()
    sequences.lanes[0].usable = False
    ask(sequences, 1, start=True)
    assert [live.key for live in sequences.backlog] == [1]
    sequences.lanes[0].usable = True
    sequences.expire(0)
    assert keys(run(sequences)[0]) == [1]


def test_few_lost_sequences_are_remembered() -> None:
    sequences = table(direct=False, slots=MOST_LOST + 5, max_waiting=MOST_LOST + 5)
    for key in range(1, MOST_LOST + 6):
        ask(sequences, key, start=True)
    sequences.lose(sequences.lanes[0], LOST, 0)
    assert (sequences.knows(5), sequences.knows(6)) == (False, True)


# iterative


def test_an_iterative_request_runs_until_its_model_has_answered() -> None:
    sequences = table(iterative=True)
    ask(sequences, 1, start=True)
    flags = []
    for _ in range(3):
        (live,), _ = run(sequences)
        flags.append(live.flags())
        sequences.again(live)
    (live,), _ = run(sequences)
    sequences.finish(live, None, 0)
    assert flags == [SEQUENCE_START, 0, 0]
    assert (len(sequences), sequences.lanes[0].released) == (0, [0])


def test_nothing_is_due_while_nothing_lives() -> None:
    assert table().next_ns == NEVER


def test_the_oldest_that_lives_is_known_and_one_that_starts_anew_is_young() -> None:
    one = table()
    assert one.oldest_ns() == 0
    for at, key in enumerate((1, 2, 3), 10):
        ask(one, key, at, start=True)
    assert one.oldest_ns() == 10
    ask(one, 1, 20, start=True)
    assert one.oldest_ns() == 11
