"""Sequences that come, run, fail and go in any order: what holds after every step of it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.errors import ExecutionFailed, SequenceLost
from schedulers.errors import BadSequence, QueueFull, ShutDown
from schedulers.policy.merge import MergeRules
from schedulers.policy.queue import Ticket
from schedulers.policy.sequences import SequenceTable
from schedulers.policy.slots import LiveSequence, SequenceRules, SlotLane
from schedulers.request import Sequence
from support.schedulers import request

LOST = SequenceLost("gone")

KEYS = st.integers(1, 7)
STEPS = st.one_of(
    st.tuples(st.just("ask"), KEYS, st.booleans(), st.booleans(), st.sampled_from("ab")),
    st.tuples(st.just("late"), KEYS, st.integers(1, 60)),
    st.tuples(st.just("run"), st.integers(0, 1)),
    st.tuples(st.just("done"), st.integers(0, 1), st.sampled_from(["", "fails", "lost"])),
    st.tuples(st.just("cancel"), st.integers(0, 30)),
    st.tuples(st.just("dies"), st.integers(0, 1)),
    st.tuples(st.just("wait"), st.integers(1, 800)),
)


class Play:
    """A table, two instances and the promises that hold after every step."""

    def __init__(self, direct: bool) -> None:
        self.now = 0
        self.table = SequenceTable(
            SequenceRules(
                direct, slots=2, idle_ns=1_000, max_waiting=6, merge=MergeRules(max_rows=2)
            )
        )
        for number in range(2):
            self.table.add_lane(number)
        self.asked: list[Ticket] = []
        self.ended: list[Ticket] = []
        self.ran: dict[int, list[Ticket]] = {}
        self.running: dict[SlotLane, list[tuple[LiveSequence, Ticket]]] = {}

    def refuse(self, refused: object) -> None:
        self.ended += [one.ticket for one in refused]  # type: ignore[attr-defined]

    def ask(self, key: int, start: bool, end: bool, shape: str) -> None:
        self._admit(Ticket(request(sequence=Sequence(key, start, end), arrived_ns=self.now,
                                   shape_key=shape)))  # fmt: skip

    def late(self, key: int, after: int) -> None:
        self._admit(Ticket(request(sequence=Sequence(key, True, False), arrived_ns=self.now,
                                   deadline_ns=self.now + after)))  # fmt: skip

    def _admit(self, ticket: Ticket) -> None:
        try:
            self.table.admit(ticket, self.now)
        except (BadSequence, QueueFull, SequenceLost):
            return
        self.asked.append(ticket)

    def run(self, number: int) -> None:
        lane = self.table.lanes[number]
        if self.running.get(lane):
            return
        self.refuse(self.table.drop_cancelled(lane))
        picked = self.table.pick(lane, self.now).sequences
        for live in picked:
            assert lane.sequences[live.slot] is live, "runs where its state is"
        self.running[lane] = list(zip(picked, self.table.start(lane, picked), strict=True))
        shapes = {ticket.request.shape_key for _, ticket in self.running[lane]}
        assert len(shapes) <= 1

    def done(self, number: int, how: str) -> None:
        errors = {"": None, "fails": ExecutionFailed("no"), "lost": LOST}
        for live, ticket in self.running.pop(self.table.lanes[number], []):
            self.ended.append(ticket)
            self.ran.setdefault(id(live), []).append(ticket)
            self.refuse(self.table.finish(live, errors[how], self.now))

    def cancel(self, index: int) -> None:
        if index < len(self.asked):
            self.asked[index].cancel()

    def dies(self, number: int) -> None:
        self.refuse(self.table.lose(self.table.lanes[number], LOST, self.now))
        self.refuse(self.table.fill_slots())

    def wait(self, time: int) -> None:
        self.now += time
        self.refuse(self.table.expire(self.now))

    def check(self) -> None:
        lanes, backlog = self.table.lanes, self.table.backlog
        seated = [live for lane in lanes for live in lane.sequences.values()]
        everyone = [*seated, *backlog]
        assert len(set(map(id, self.ended))) == len(self.ended), "ends once"
        assert sum(len(live.waiting) for live in everyone) == self.table.waiting <= 6
        for lane in lanes:
            assert sorted([*lane.free, *lane.sequences]) == list(range(self.table.rules.slots))
            for live in lane.ready:
                assert live.waiting
                assert live.running is None
                assert lane.sequences[live.slot] is live
        assert all(live.waiting and live.running is None for live in backlog)
        if any(lane.free for lane in lanes):
            assert not backlog, "a free slot is given away"
        for ran in self.ran.values():
            assert [self.asked.index(one) for one in ran] == sorted(map(self.asked.index, ran))

    def finish(self) -> None:
        for number in range(2):
            self.done(number, "")
        self.refuse(self.table.clear(ShutDown("")))
        assert sorted(map(id, self.ended)) == sorted(map(id, self.asked)), "every request ends"
        assert (len(self.table), self.table.waiting) == (0, 0)


@pytest.mark.parametrize("direct", [True, False])
@settings(max_examples=150, deadline=None)
@given(steps=st.lists(STEPS, max_size=40))
def test_every_request_ends_once_in_the_order_of_its_sequence_and_bounds_hold(
    steps: list[tuple[object, ...]], direct: bool
) -> None:
    play = Play(direct)
    for name, *arguments in steps:
        getattr(play, str(name))(*arguments)
        play.check()
    play.finish()
