"""Calls from inside the server go the whole way of a client's request."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from control.access.scopes import Principal, Role, parse_scopes
from control.desired import DesiredArm, DesiredRoute, DesiredState
from control.gateways.queries import RequestsQuery
from schedulers.calls import call_from, context_of
from schedulers.counters import Counters
from schedulers.ensembles.policy.compile import CompiledEnsemble, compile_ensemble
from schedulers.ensembles.scheduler import EnsembleScheduler
from schedulers.ensembles.served_ensemble import ServedEnsemble
from schedulers.errors import Cancelled, DeadlineExceeded, QueueFull
from schedulers.request import CallContext, InferRequest, Sequence
from server.dataplane import DataPlane
from server.errors import Forbidden, InvalidRequest, NotReady, UnknownModel
from server.history.history import LONGEST_ID
from server.model_calls import DataPlaneCaller
from server.process.lifecycle import Lifecycle
from server.settings.trace_config import TraceConfig
from server.trace.record import INSIDE, RequestReceipt, Trace
from server.trace.tracing import Tracing
from support.ensembles import graph_of, signature
from support.grpc import IDENTITY, PAIR, SLOW, Shelf, put
from support.server import identity_config

PATIENCE_S = 60


class Scene:
    """A data plane over identity models, and who calls them."""

    def __init__(self) -> None:
        self.lifecycle = Lifecycle()
        self.tracing = Tracing(TraceConfig(file="kept"))
        texts = (IDENTITY, PAIR, SLOW, identity_config("one"), identity_config("two"))
        self.served = [*(put(text) for text in texts), put(identity_config("one"), 2)]
        self.shelf = Shelf(self.served)
        self.dataplane = DataPlane(
            self.shelf, "s", "0", tracing=self.tracing, lifecycle=self.lifecycle
        )
        self.caller = DataPlaneCaller(lambda: self.dataplane)
        self.context: CallContext | None = None

    def outer(self, **terms: Any) -> InferRequest:
        terms = {"arrived_ns": time.monotonic_ns(), "id": "r1", **terms}
        model, inputs = terms.pop("model", "caller"), terms.pop("inputs", {})
        return InferRequest(model, 1, inputs, 1, None, **terms)

    def call(self, model: str = "identity", shape: tuple[int, ...] = (1, 16), **terms: Any) -> Any:
        """The reply to one call of an identity model's input."""
        outer = terms.pop("outer", None) or self.outer()
        if self.context is None:
            self.context = context_of(outer)
        inputs = terms.pop("inputs", {"INPUT0": np.zeros(shape, np.float32)})
        return self.caller.call(call_from(outer, self.context, model, inputs, **terms))


Act = Callable[[Scene], Awaitable[None]]


def play(act: Act) -> None:
    async def whole() -> None:
        scene = Scene()
        async with asyncio.timeout(PATIENCE_S):
            try:
                await act(scene)
            finally:
                for served in scene.served:
                    await served.scheduler.close()

    asyncio.run(whole())


def test_a_call_is_answered_by_the_same_arrays_counted_and_kept_in_the_history() -> None:
    async def act(scene: Scene) -> None:
        values = np.arange(16, dtype=np.float32).reshape(1, 16)
        reply = scene.call(
            inputs={"INPUT0": values}, outer=scene.outer(number=77, client_id="mine")
        )
        answer = await reply.one()
        assert answer.outputs["OUTPUT0"] is values
        assert scene.served[0].counters.success == 1
        (row,) = scene.dataplane.history.answer(RequestsQuery()).items
        assert (row.model, row.outcome, row.client_id) == ("identity", "ok", "mine")
        assert row.id.endswith(f"-{77:x}")

    play(act)


def test_a_long_id_that_a_script_gives_its_call_is_cut_for_the_history() -> None:
    async def act(scene: Scene) -> None:
        reply = scene.call(outer=scene.outer(id="x" * 10_000))
        assert reply.request.client_id == "x" * LONGEST_ID
        assert (await reply.one()).id == "x" * 10_000

    play(act)


@pytest.mark.parametrize(
    ("terms", "text"),
    [
        (
            {"inputs": {}},
            "[request id: r1] expected 1 inputs but got 0 inputs for model 'identity'.",
        ),
        (
            {"inputs": {"X": np.zeros((1, 16), np.float32)}},
            "unexpected inference input 'X' for model",
        ),
        (
            {"inputs": {"INPUT0": np.zeros((1, 16), np.int32)}},
            "inference input 'INPUT0' data-type is 'INT32', but model 'identity' expects 'FP32'",
        ),
        (
            {"inputs": {"INPUT0": np.zeros((1, 16), np.complex64)}},
            "inference input 'INPUT0' for model 'identity' has elements of complex64",
        ),
        ({"shape": (1, 15)}, "unexpected shape for input 'INPUT0' for model 'identity'. Expected"),
        ({"shape": (9, 16)}, "inference request batch-size must be <= 8 for 'identity'"),
        ({"requested_outputs": ("Y",)}, "unexpected inference output 'Y' for model 'identity'"),
        ({"version": "x"}, "failed to get model version from specified version string 'x'"),
    ],
)
def test_a_bad_call_is_refused_in_a_clients_words(terms: dict[str, Any], text: str) -> None:
    async def act(scene: Scene) -> None:
        with pytest.raises(InvalidRequest) as refused:
            scene.call(**terms)
        assert text in str(refused.value)
        assert scene.dataplane.history.answer(RequestsQuery(outcome="refused")).items

    play(act)


def test_an_unknown_callee_is_refused() -> None:
    async def act(scene: Scene) -> None:
        with pytest.raises(UnknownModel, match="Request for unknown model: 'nobody' is not found"):
            scene.call("nobody")

    play(act)


def test_a_call_needs_its_principals_permission_unless_the_callers_covers_it() -> None:
    narrow = Principal("token:t", Role.VIEWER, parse_scopes(["infer:caller"]))

    async def act(scene: Scene) -> None:
        outer = scene.outer(principal=narrow)
        with pytest.raises(Forbidden, match="may not infer with 'identity': it lacks the scope"):
            scene.call(outer=outer)
        assert (await scene.call(outer=outer, covered=True).one()).model == "identity"

    play(act)


def test_a_deadline_a_timeout_and_a_full_queue_hold_for_calls_too() -> None:
    async def act(scene: Scene) -> None:
        running = scene.call("slow", (1, 1))
        late = scene.call("slow", (1, 1), deadline_ns=time.monotonic_ns() + 1_000_000)
        with pytest.raises(QueueFull, match=r"\[request id: r1\] Exceeds maximum queue size"):
            scene.call("slow", (1, 1))
        with pytest.raises(DeadlineExceeded):
            await late.one()
        running.cancel()
        with pytest.raises(Cancelled):
            await running.one()

    play(act)


def test_calls_of_one_request_get_one_arm_of_a_route_and_another_request_may_get_another() -> None:
    arms = (DesiredArm("stable", "one", 1, "", 5000), DesiredArm("candidate", "two", 1, "", 5000))

    async def act(scene: Scene) -> None:
        scene.dataplane.routing.use(DesiredState(routes=(DesiredRoute("public", arms, salt="s"),)))
        met = set()
        for _ in range(40):
            scene.context = None
            answers = [await scene.call("public", (1, 4)).one() for _ in range(3)]
            (model,) = {answer.model for answer in answers}
            met.add(model)
        assert met == {"one", "two"}

    play(act)


def test_a_mapped_step_and_two_steps_on_one_route_count_each_call_for_the_arm() -> None:
    arms = (DesiredArm("stable", "one", 1, "", 10_000),)
    own = signature("e", {"IN": "FP32 -1 4"}, {"OUT": "FP32 -1 4"}, max_batch=0)
    pairs = {"INPUT0": "IN"}, {"OUTPUT0": "OUT"}
    twice = {"INPUT0": "IN"}, {"OUTPUT0": "between"}
    last = {"INPUT0": "between"}, {"OUTPUT0": "OUT"}
    mapped = graph_of(own, ("public", *pairs), maps={0: "IN"})
    chained = graph_of(own, ("public", *twice), ("public", *last))

    async def act(scene: Scene) -> None:
        routing = scene.dataplane.routing
        routing.use(DesiredState(routes=(DesiredRoute("public", arms, salt="s"),)))
        callees = {("public", ""): scene.caller.signatures("public", "")}
        for graph in (mapped, chained):
            plan = compile_ensemble(graph, own, callees)
            assert isinstance(plan, CompiledEnsemble), plan
            ensemble = ServedEnsemble(graph, own, plan, scene.caller.signatures)
            scheduler = EnsembleScheduler(ensemble, scene.caller, Counters(), 100)
            inputs = {"IN": np.zeros((3, 4), np.float32)}
            await scheduler.submit(scene.outer(model="e", inputs=inputs)).one()
        ((_, window),) = routing.windows.rows()
        assert window.requests == 3 + 2
        rows = scene.dataplane.history.answer(RequestsQuery()).items
        assert [row.arm for row in rows] == ["one@1;stable"] * (3 + 2)

    play(act)


def test_a_route_by_header_finds_the_header_among_the_forwarded_parameters() -> None:
    arms = (DesiredArm("stable", "one", 1, "", 5000), DesiredArm("candidate", "two", 1, "", 5000))
    route = DesiredRoute("public", arms, salt="s", unit="header:x-user")

    async def act(scene: Scene) -> None:
        scene.dataplane.routing.use(DesiredState(routes=(route,)))

        async def of_user(user: str) -> str:
            scene.context = None
            reply = scene.call("public", (1, 4), parameters={"X-User": user})
            return str((await reply.one()).model)

        assert len({await of_user("ada") for _ in range(12)}) == 1
        assert {await of_user(f"user {number}") for number in range(40)} == {"one", "two"}

    play(act)


def test_a_kept_version_answers_to_the_end_of_the_request_and_holds_up_its_draining() -> None:
    async def act(scene: Scene) -> None:
        newest = scene.served[-1]
        first = await scene.call("one", (1, 4), keeps_version=True).one()
        scene.shelf.remove(newest)
        waiting = asyncio.create_task(newest.released(time.monotonic_ns() + 60_000_000_000))
        await asyncio.sleep(0)
        second = await scene.call("one", (1, 4), keeps_version=True).one()
        assert (first.version, second.version) == (2, 2)
        assert not waiting.done()
        assert scene.context is not None
        scene.context.end()
        await waiting
        scene.context = None
        assert (await scene.call("one", (1, 4), keeps_version=True).one()).version == 1

    play(act)


def test_versions_are_kept_before_the_first_call_where_they_serve() -> None:
    async def act(scene: Scene) -> None:
        scene.context = context = context_of(scene.outer())
        scene.caller.keep(context, [("one", ""), ("nobody", ""), ("one", "1"), ("one", "x")])
        assert set(context.root.versions) == {("one", ""), ("one", "1")}
        context.end()
        assert [served.holds for served in scene.served] == [0] * 6

    play(act)


def test_nobody_waits_for_what_is_kept_longer_than_the_drain_may_last() -> None:
    async def act(scene: Scene) -> None:
        served = scene.served[0]
        served.keep()
        await served.released(time.monotonic_ns())

    play(act)


def test_while_the_server_stops_accepted_requests_may_still_call() -> None:
    async def act(scene: Scene) -> None:
        scene.lifecycle.stopping = True
        assert (await scene.call().one()).model == "identity"

    play(act)


def test_a_call_of_a_sequence_carries_its_terms_to_the_callee() -> None:
    async def act(scene: Scene) -> None:
        seen: list[InferRequest] = []
        scheduler = scene.served[0].scheduler
        submit = scheduler.submit
        scheduler.submit = lambda one: seen.append(one) or submit(one)  # type: ignore[method-assign]
        terms = {"sequence": Sequence("s", True, False), "priority": 3, "timeout_us": 9_000_000}
        await scene.call(outer=scene.outer(parameters={"p": 1}, **terms)).one()
        (got,) = seen
        assert {name: getattr(got, name) for name in terms} == terms
        assert dict(got.parameters) == {"p": 1}
        assert got.context is scene.context

    play(act)


def test_the_trace_of_a_call_names_its_parent_and_ends_with_it() -> None:
    async def act(scene: Scene) -> None:
        ended: list[Trace] = []
        scene.tracing._keep = ended.append  # type: ignore[method-assign]
        scene.tracing.change("", {"trace_level": ["TIMESTAMPS"], "trace_rate": "1"})
        outer = scene.tracing.begin("caller", 1, RequestReceipt(INSIDE, 1, 2))
        assert outer is not None
        await scene.call(outer=scene.outer(trace=outer)).one()
        with pytest.raises(InvalidRequest):
            scene.call(outer=scene.outer(trace=outer), inputs={})
        good, bad = ended
        assert [one.parent_number for one in ended] == [outer.number] * 2
        assert [point.name for point in good.points] == [
            "REQUEST_START",
            "QUEUE_START",
            "COMPUTE_START",
            "COMPUTE_INPUT_END",
            "COMPUTE_OUTPUT_START",
            "COMPUTE_END",
            "INFER_RESPONSE_COMPLETE",
            "REQUEST_END",
        ]
        assert bad.error is not None
        assert bad.error.startswith("[request id: r1] expected 1 inputs")

    play(act)


def test_a_callee_that_is_not_ready_refuses() -> None:
    async def act(scene: Scene) -> None:
        scene.served[0].instances[0].ready = False
        scene.served[0].instances = scene.served[0].instances[:1]
        with pytest.raises(NotReady, match="'identity' version 1 is not at ready state"):
            scene.call()

    play(act)


def test_a_call_is_a_new_request_that_leaves_the_callers_alone() -> None:
    async def act(scene: Scene) -> None:
        outer = scene.outer()
        before = replace(outer)
        await scene.call(outer=outer).one()
        assert all(getattr(outer, name) is getattr(before, name) for name in outer.__slots__)

    play(act)
