"""Requests of sequences are counted where they are answered, and remembered where they are taken;
what is none of a sequence is counted for the version that refuses it, as its client's mistake."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

import numpy as np
import pytest

from control.desired import DesiredArm, DesiredRoute, DesiredState
from schedulers.errors import BadSequence, UnknownSequence
from schedulers.request import Sequence
from server.codec.output_format import InferBody
from server.dataplane import DataPlane
from server.errors import NotReady
from server.inference import Inference
from server.routing.table import CompiledRoute
from server.served_version import ServedVersion
from support.grpc import Shelf, put

SEQUENCE = """
name: "sums" backend: "identity" max_batch_size: 4
input { name: "INPUT0" data_type: TYPE_FP32 dims: 4 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 4 }
sequence_batching { oldest { max_candidate_sequences: 4 } max_sequence_idle_microseconds: 60000000 }
"""


class Holding(Shelf):
    """As a fleet whose old versions go on with the sequences that began on them."""

    def __init__(self, served: list[ServedVersion]) -> None:
        super().__init__(served)
        self.all = served

    def holders_of(self, name: str, version: int | None, key: int | str) -> list[ServedVersion]:
        those = [one for one in self.all if version in (None, one.version.number)]
        return [one for one in those if one.scheduler.holds(key)]  # type: ignore[attr-defined]


class SequenceInference(Inference):
    def __init__(self, model: str, sequence: Sequence | None, rows: int = 1) -> None:
        super().__init__(model, "", None, time.monotonic_ns())
        self.own, self.rows = sequence, rows

    def sequence(self) -> Sequence | None:
        return self.own

    def unit_in_header(self, route: CompiledRoute) -> str:
        return ""

    def labels(self, route: CompiledRoute) -> Mapping[str, str]:
        return {}

    def decode(self, served: ServedVersion) -> InferBody:
        inputs = {"INPUT0": np.zeros((self.rows, 4), np.float32)}
        terms: dict[str, int | str | bool] = {}
        if self.own is not None:
            key, start, end = self.own
            terms = {"sequence_id": key, "sequence_start": start, "sequence_end": end}
        return InferBody("r", inputs, self.rows, None, (), terms)


class Scene:
    """Two versions of one model of sequences; `infer` asks as a client does."""

    def __init__(self) -> None:
        self.old, self.new = put(SEQUENCE, 1), put(SEQUENCE, 2)
        self.models = Holding([self.old, self.new])
        self.dataplane = DataPlane(self.models, "s", "0")

    async def infer(
        self,
        key: int | None,
        start: bool = False,
        model: str = "sums",
        end: bool = False,
        rows: int = 1,
    ) -> int:
        """The version that answered."""
        sequence = None if key is None else Sequence(key, start, end)
        answer = await self.dataplane.infer(SequenceInference(model, sequence, rows)).one()
        return answer.version

    def lead_to(self, version: int) -> None:
        """The route `public` has this version as its only arm from here on."""
        arms = (DesiredArm(f"arm{version}", "sums", version, "", 10_000),)
        self.dataplane.routing.use(DesiredState(routes=(DesiredRoute("public", arms, salt="s"),)))


def play(act: Callable[[Scene], Awaitable[None]]) -> None:
    async def whole() -> None:
        scene = Scene()
        async with asyncio.timeout(60):
            try:
                await act(scene)
            finally:
                for served in (scene.old, scene.new):
                    await served.scheduler.close()

    asyncio.run(whole())


def test_requests_of_a_sequence_on_its_old_version_count_nothing_for_the_new_one() -> None:
    async def act(scene: Scene) -> None:
        scene.models.remove(scene.new)
        assert await scene.infer(7, start=True) == 1
        scene.models.remove(scene.old)
        scene.models._served.append(scene.new)  # as a reload does
        assert [await scene.infer(7) for _ in range(3)] == [1, 1, 1]
        assert scene.old.counters.success == 4
        for served in (scene.old, scene.new):
            assert sum(served.counters.failure.values()) == 0

    play(act)


def test_what_clients_get_wrong_about_sequences_is_no_refusal_of_the_version() -> None:
    async def act(scene: Scene) -> None:
        with pytest.raises(UnknownSequence, match="must specify the START flag"):
            await scene.infer(8)
        with pytest.raises(BadSequence, match="non-empty correlation ID"):
            await scene.infer(None)
        counters = scene.new.counters
        assert counters.failure == {"REJECTED": 0, "CANCELED": 0, "BACKEND": 0, "OTHER": 2}
        assert counters.client_errors == 2
        assert sum(scene.old.counters.failure.values()) == 0

    play(act)


def test_a_refused_start_leaves_a_sequence_on_the_arm_where_it_lives() -> None:
    async def act(scene: Scene) -> None:
        scene.lead_to(1)
        assert await scene.infer(7, start=True, model="public") == 1
        scene.lead_to(2)
        await scene.new.scheduler.drain(0)
        with pytest.raises(NotReady):
            await scene.infer(7, start=True, model="public")
        assert await scene.infer(7, model="public") == 1

    play(act)


def test_a_refused_end_leaves_a_sequence_on_the_arm_where_it_lives() -> None:
    async def act(scene: Scene) -> None:
        scene.lead_to(1)
        assert await scene.infer(7, start=True, model="public") == 1
        scene.lead_to(2)
        with pytest.raises(BadSequence, match="must specify batch-size 1"):
            await scene.infer(7, end=True, model="public", rows=2)
        assert await scene.infer(7, end=True, model="public") == 1

    play(act)


def test_an_arm_whose_version_is_gone_counts_no_error_while_its_sequences_go_on() -> None:
    arms = (DesiredArm("stable", "sums", 2, "", 10_000),)

    async def act(scene: Scene) -> None:
        routing = scene.dataplane.routing
        routing.use(DesiredState(routes=(DesiredRoute("public", arms, salt="s"),)))
        assert await scene.infer(7, start=True, model="public") == 2
        scene.models.remove(scene.new)
        assert await scene.infer(7, model="public") == 2
        ((_, window),) = routing.windows.rows()
        assert (window.requests, window.errors) == (2, 0)

    play(act)
