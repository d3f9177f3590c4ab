"""The gateway's samples: which requests are kept, for how long, in how many bytes."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import numpy as np
from msgspec.structs import asdict

from control.access.scopes import Principal, Role
from control.gateways.queries import (
    SampledRequests,
    SamplesQuery,
    SamplingQuery,
    SamplingState,
    StartSampling,
    StopSampling,
    samples_in,
)
from schedulers.errors import QueueFull
from schedulers.reply import Reply
from schedulers.request import InferRequest, InferResponse
from server.errors import Internal
from server.samples.ring import PER_S, SampleRing
from server.samples.samples import MOST_MODELS, Samples


def on_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


def request(identity: str = "r1", model: str = "digits") -> InferRequest:
    inputs = {"INPUT0": np.arange(16, dtype=np.float32)}
    arrived_ns, ada = time.monotonic_ns(), Principal("ada", Role.VIEWER)
    return InferRequest(model, 1, inputs, 1, None, arrived_ns, identity, principal=ada)


def start(samples: Samples, model: str = "digits", **changes: Any) -> SamplingState:
    usual = {"seconds": 60.0, "percent": 100, "max_bytes": 2**20, "values": False, "by": "user:ada"}
    found = samples.answer(StartSampling(model=model, **usual | changes))
    assert isinstance(found, SamplingState)
    return found


def rows(samples: Samples, model: str = "", identity: str = "", limit: int = 100) -> list[Any]:
    found = samples.answer(SamplesQuery(model, identity, limit))
    assert isinstance(found, SampledRequests)
    return [asdict(row) for row in samples_in(found)]


def take(samples: Samples, one: InferRequest, arm: str = "") -> Reply:
    reply = Reply()
    sample = samples.begin(one, arm, False)
    if sample is not None:
        reply.watch(sample.ended)
    return reply


def answer(one: InferRequest) -> InferResponse:
    return InferResponse(one.id, one.model, one.version, {"OUTPUT0": np.zeros(9, np.int64)})


def test_nothing_is_sampled_until_somebody_says_so() -> None:
    samples = Samples()
    assert not samples.on
    assert samples.begin(request(), "", False) is None


@on_a_loop
async def test_a_request_is_kept_with_its_answer_and_found_by_its_id() -> None:
    samples = Samples()
    start(samples)
    for number in range(3):
        one = request(f"order-{number}")
        take(samples, one, "digits@1;stable").send(answer(one))
    (found,) = rows(samples, identity="order-1")
    assert (found["model"], found["version"], found["arm"]) == ("digits", 1, "digits@1;stable")
    assert (found["state"], found["status"], found["principal"]) == ("ok", 200, "ada")
    assert found["inputs"][0]["shape"] == [16]
    assert found["outputs"][0]["datatype"] == "INT64"
    assert "values" not in found["inputs"][0]
    assert [row["id"] for row in rows(samples)] == ["order-2", "order-1", "order-0"]
    assert len(rows(samples, identity="order", limit=2)) == 2
    assert rows(samples, model="faces") == []


@on_a_loop
async def test_how_a_request_came_to_a_bad_end_is_kept() -> None:
    samples = Samples()
    start(samples)
    take(samples, request("failed")).fail(Internal("it broke"))
    take(samples, request("gone")).cancel()
    sample = samples.begin(request("refused"), "", False)
    assert sample is not None
    sample.refused(QueueFull("full"))
    told = {row["id"]: (row["state"], row["status"], row["error"]) for row in rows(samples)}
    assert told == {
        "failed": ("failed", 500, "it broke"),
        "gone": ("cancelled", 0, ""),
        "refused": ("refused", 503, "full"),
    }


@on_a_loop
async def test_it_ends_by_itself_and_what_was_kept_stays_for_a_while() -> None:
    samples = Samples()
    start(samples, seconds=0.05)
    one = request()
    take(samples, one).send(answer(one))
    loop = asyncio.get_running_loop()
    later = loop.create_future()
    loop.call_later(0.06, later.set_result, None)  # timers end in the order of their times
    await later
    assert not samples.on
    assert samples.begin(request("late"), "", False) is None
    assert [row["id"] for row in rows(samples)] == ["r1"]
    (standing,) = samples.answer(SamplingQuery()).models
    assert (standing.active, standing.kept) == (False, 1)


@on_a_loop
async def test_the_oldest_give_way_to_the_bound_of_bytes() -> None:
    samples = Samples()
    start(samples, max_bytes=2000)
    for number in range(50):
        one = request(f"r{number}")
        take(samples, one).send(answer(one))
    (standing,) = samples.answer(SamplingQuery()).models
    assert standing.size_bytes <= 2000
    assert standing.taken == 50
    assert rows(samples)[0]["id"] == "r49"
    assert len(rows(samples)) == standing.kept < 10


@on_a_loop
async def test_a_share_of_the_requests_is_a_share() -> None:
    samples = Samples()
    start(samples, percent=0.001)
    assert sum(samples.begin(request(), "", False) is not None for _ in range(2000)) < 20


def test_no_more_than_so_many_a_second_are_taken() -> None:
    ring = SampleRing()
    assert sum(ring.may_take(1.0) for _ in range(10_000)) == PER_S
    assert not ring.may_take(1.0)
    assert sum(ring.may_take(1.5) for _ in range(10_000)) == PER_S / 2


@on_a_loop
async def test_only_so_many_models_are_sampled_and_ended_ones_give_way() -> None:
    samples = Samples()
    for number in range(MOST_MODELS):
        start(samples, f"m{number}")
    assert "stop one" in start(samples, "another").problem
    samples.answer(StopSampling("m3"))
    assert start(samples, "another").problem == ""
    names = [one.model for one in samples.answer(SamplingQuery()).models]
    assert len(names) == MOST_MODELS
    assert "m3" not in names


@on_a_loop
async def test_two_may_watch_how_a_reply_ends() -> None:
    seen: list[int] = []
    reply = Reply()
    for number in range(3):
        reply.watch(lambda _, number=number: seen.append(number))
    reply.close()
    assert seen == [0, 1, 2]
