"""Copies of requests: few at a time, counted, and never in anybody's way."""

import asyncio
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from control.desired import Mirror
from schedulers.errors import QueueFull
from schedulers.reply import Reply
from schedulers.request import InferRequest, InferResponse, Sequence
from server.errors import InvalidRequest
from server.routing import mirror
from server.routing.arm_counters_registry import ArmCountersRegistry
from server.routing.mirror import RUNNING, WAITING, WAITING_BYTES, Mirrors
from server.routing.table import Target, compile_table, targets_of
from support.routing import halves

TABLE = compile_table([halves(mirrors=(Mirror("candidate", 10_000),))], {})
COPY = TABLE["numbers"].copied[0].target


class Desk:
    """Takes copies; a test decides how they end."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.taken: list[Reply] = []
        self.windows = ArmCountersRegistry()
        self.windows.use(targets_of(TABLE))
        self.mirrors = Mirrors(self.send, self.windows)

    def send(self, target: Target, request: InferRequest, until_ns: int) -> Reply:
        assert target is COPY
        assert until_ns > time.monotonic_ns()
        if self.error is not None:
            raise self.error
        self.taken.append(Reply())
        return self.taken[-1]

    def answer(self) -> None:
        self.taken.pop(0).send(InferResponse("", "digits", 2, {}))

    @property
    def dropped(self) -> int:
        return self.mirrors.dropped.get(COPY.key, 0)

    @property
    def counted(self) -> tuple[int, int, int]:
        window = self.windows.of(COPY)
        return window.requests, window.errors, window.in_flight


def asked(size: int = 4, sequence: Sequence | None = None) -> InferRequest:
    made = InferRequest("digits", 1, {"x": np.zeros(size, np.uint8)}, 1, None, 0)
    made.sequence = sequence
    return made


def run(test: Callable[[], Any]) -> None:
    asyncio.run(test())


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_a_copy_goes_out_in_a_later_turn_and_is_counted_when_it_ends() -> None:
    async def test() -> None:
        desk = Desk()
        desk.mirrors.offer((COPY,), asked())
        assert desk.taken == []
        await turn()
        assert desk.counted == (0, 0, 1)
        desk.answer()
        assert desk.counted == (1, 0, 0)

    run(test)


def test_what_is_too_much_is_dropped_and_counted_and_goes_on_afterwards() -> None:
    async def test() -> None:
        desk = Desk()
        for _ in range(RUNNING + WAITING + 5):
            desk.mirrors.offer((COPY,), asked())
            await turn()
        assert (len(desk.taken), desk.dropped) == (RUNNING, 5)
        for _ in range(RUNNING + WAITING):
            desk.answer()
            await turn()
        assert desk.counted == (RUNNING + WAITING, 0, 0)

    run(test)


def test_a_target_that_was_full_takes_copies_again_as_soon_as_it_answers() -> None:
    async def test() -> None:
        desk = Desk()
        for _ in range(RUNNING + WAITING + 1):
            desk.mirrors.offer((COPY,), asked())
            await turn()
        for _ in range(2):
            desk.answer()
            await turn()
            desk.mirrors.offer((COPY,), asked())
        assert desk.dropped == 1
        desk.mirrors.offer((COPY,), asked())
        assert desk.dropped == 2

    run(test)


def test_large_copies_are_held_to_their_bytes() -> None:
    async def test() -> None:
        desk = Desk()
        for _ in range(RUNNING):
            desk.mirrors.offer((COPY,), asked())
        await turn()
        for _ in range(3):
            desk.mirrors.offer((COPY,), asked(WAITING_BYTES // 2))
        assert desk.dropped == 1

    run(test)


def test_no_copy_is_made_of_a_sequence() -> None:
    async def test() -> None:
        desk = Desk()
        desk.mirrors.offer((COPY,), asked(sequence=Sequence(7, True, False)))
        await turn()
        assert desk.taken == []

    run(test)


def test_what_refuses_a_copy_is_counted_but_not_that_it_takes_other_inputs() -> None:
    async def test() -> None:
        for error, counted in (
            (QueueFull("full"), (1, 1, 0)),
            (InvalidRequest("no such input"), (0, 0, 0)),
        ):
            desk = Desk(error)
            desk.mirrors.offer((COPY,), asked())
            await turn()
            assert desk.counted == counted

    run(test)


def test_a_wedged_target_keeps_a_few_copies_which_count_as_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        desk = Desk()
        for _ in range(RUNNING + WAITING):
            desk.mirrors.offer((COPY,), asked())
            await turn()
        monkeypatch.setattr(time, "monotonic_ns", lambda: late_ns)
        desk.mirrors.offer((COPY,), asked())
        assert desk.counted == (RUNNING, RUNNING, RUNNING)
        assert desk.dropped == WAITING
        for reply in list(desk.taken):
            reply.close()
        await turn()
        requests, errors, _ = desk.counted
        assert (requests, errors) == (RUNNING, RUNNING)

    late_ns = time.monotonic_ns() + 10 * mirror.PATIENCE_NS
    run(test)


def test_a_wedged_target_costs_no_memory() -> None:
    async def test() -> None:
        desk = Desk()

        async def offer(count: int) -> int:
            for _ in range(count):
                desk.mirrors.offer((COPY,), asked(10_000))
                await asyncio.sleep(0)
            return tracemalloc.get_traced_memory()[0]

        await offer(1_000)
        tracemalloc.start()
        try:
            before = await offer(100)
            assert await offer(5_000) - before < 100_000
        finally:
            tracemalloc.stop()
        assert desk.dropped > 5_000

    run(test)


def test_what_waits_for_a_route_that_is_gone_is_let_go() -> None:
    async def test() -> None:
        desk = Desk()
        for _ in range(RUNNING + 5):
            desk.mirrors.offer((COPY,), asked(WAITING_BYTES // 8))
        await turn()
        desk.mirrors.use([])
        for _ in range(8):
            desk.mirrors.offer((COPY,), asked(WAITING_BYTES // 8))
        assert desk.dropped == 0

    run(test)
