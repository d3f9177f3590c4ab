"""Which calls can never be answered, of instances that hold resources while they wait."""

import asyncio
from collections.abc import Callable
from typing import cast

from backends.process.call_messages import CallRequest
from backends.process.health.liveness import Activity
from backends.seam import Instance
from repository.model import ModelVersion
from schedulers.policy.resource_limits import GLOBAL, InstanceLimit, Resource, ResourceLimiter
from schedulers.request import CallContext, CallRoot
from server.bls.waiting import Caller, Waiting
from server.dataplane import DataPlane
from server.script_surroundings import GatewaySurroundings
from support.grpc import Shelf, put

CONFIG = """
name: "%s" backend: "identity"
input { name: "x" data_type: TYPE_FP32 dims: 4 } output { name: "y" data_type: TYPE_FP32 dims: 4 }
instance_group { kind: KIND_CPU }
"""
R = Resource("R", GLOBAL)


class Nobody:
    """Waits for no resource."""

    def wake(self) -> None: ...


class CallingOne:
    """An instance that calls, and its connection in one."""

    def __init__(self, version: ModelVersion) -> None:
        self.version = version
        self.activity = Activity()
        self.ended: list[tuple[int, str]] = []

    def end_call(self, number: int, refusal: str) -> None:
        self.ended.append((number, refusal))

    @property
    def instance(self) -> "CallingOne":
        return self

    @property
    def spec(self) -> object:
        return self

    def waits(self) -> None: ...

    def execute(self) -> None:
        self.activity.executions += 1
        self.activity.executing = True


class LimitedShelf(Shelf):
    """Whose models have one instance each, which the limiter knows."""

    def __init__(self, needs: dict[str, int]) -> None:
        super().__init__([put(CONFIG % name) for name in needs])
        self._limiter = ResourceLimiter({R: 1})
        self.callers: dict[str, CallingOne] = {}
        for served in self._served:
            name = served.version.name
            caller = self.callers[name] = CallingOne(served.version)
            served.instances = (cast(Instance, caller),)
            self._limiter.register({caller: InstanceLimit({R: needs[name]} if needs[name] else {})})

    @property
    def limiter(self) -> ResourceLimiter:
        return self._limiter


class Scene:
    """`holder` executes and holds the only copy of R, which `needy` needs, and neither `relay`
    nor `free` does."""

    def __init__(self) -> None:
        models = LimitedShelf({"holder": 1, "relay": 0, "needy": 1, "free": 0})
        dataplane = DataPlane(models, "s", "0")  # type: ignore[arg-type]
        self._waiting = Waiting(GatewaySurroundings(lambda: dataplane))
        self._models, self._limiter = models, models.limiter
        self.holder, self.relay = models.callers["holder"], models.callers["relay"]
        self.needy, self.free = models.callers["needy"], models.callers["free"]
        self.holder.execute()
        assert models.limiter.may_start(self.holder, Nobody())
        models.limiter.take(self.holder)
        self._number = 0

    def give_instances(self, model: str, count: int) -> None:
        """As a new config of the model that serves does."""
        served = self._models.get(model, None)
        others = [CallingOne(served.version) for _ in range(count - 1)]
        self._limiter.register(dict.fromkeys(others, InstanceLimit({})))
        served.instances = (served.instances[0], *(cast(Instance, one) for one in others))
        self._waiting.look_again()

    def remove_first(self, model: str) -> None:
        """As a new config of the model does that leaves it one instance fewer: one that executes is
        closed when that has ended."""
        served = self._models.get(model, None)
        served.instances = served.instances[1:]
        self._waiting.look_again()

    def raise_limits(self, caller: CallingOne, copies: int) -> None:
        """As a new config of the model that serves does."""
        self._limiter.register({caller: InstanceLimit({R: copies})})
        self._waiting.look_again()

    def call(self, caller: CallingOne, model: str) -> str:
        """Its refusal."""
        self._number += 1
        request = CallRequest(self._number, model, -1, "", 0, 0, 0, "", (), False, (), (), b"")
        context = CallContext((), CallRoot())
        return self._waiting.begin(cast(Caller, caller), request, context)


def play(act: Callable[[Scene], None]) -> None:
    async def whole() -> None:
        act(Scene())

    asyncio.run(whole())


def test_a_chain_of_calls_to_a_model_that_needs_what_its_first_caller_holds_is_refused() -> None:
    def act(scene: Scene) -> None:
        assert scene.call(scene.holder, "relay") == ""
        scene.relay.execute()
        assert "'needy' version 1 needs 1 of the resource 'R'" in scene.call(scene.relay, "needy")

    play(act)


def test_a_call_that_an_ended_execution_did_not_wait_for_keeps_its_instance_from_nothing() -> None:
    def act(scene: Scene) -> None:
        scene.relay.execute()
        assert scene.call(scene.relay, "needy") == ""
        scene.relay.activity.executing = False
        assert scene.call(scene.holder, "relay") == ""
        scene.relay.execute()
        assert scene.call(scene.holder, "relay") == "", "another execution is inside by now"

    play(act)


def test_call_whose_model_comes_to_need_what_its_caller_holds_is_ended_and_no_other() -> None:
    def act(scene: Scene) -> None:
        assert scene.call(scene.holder, "relay") == ""
        assert scene.call(scene.needy, "relay") == "", "it does not execute"
        scene.raise_limits(scene.relay, 0)
        assert not scene.holder.ended
        scene.raise_limits(scene.relay, 1)
        ((number, refusal),) = scene.holder.ended
        assert number == 1
        assert "'relay' version 1 needs 1 of the resource 'R'" in refusal
        scene.raise_limits(scene.relay, 1)
        assert len(scene.holder.ended) == 1
        assert not scene.needy.ended

    play(act)


def test_call_that_closes_a_circle_with_the_last_instance_is_ended() -> None:
    """`relay` has two instances, one of which calls the other, which is removed."""

    def act(scene: Scene) -> None:
        scene.give_instances("relay", 2)
        scene.relay.execute()
        assert scene.call(scene.relay, "relay") == ""
        scene.give_instances("relay", 1)
        ((number, refusal),) = scene.relay.ended
        assert number == 1
        assert "this call can never be answered" in refusal

    play(act)


def test_call_of_an_instance_that_is_removed_goes_on_where_another_one_is_idle() -> None:
    def act(scene: Scene) -> None:
        scene.give_instances("relay", 2)
        scene.relay.execute()
        assert scene.call(scene.relay, "relay") == ""
        scene.remove_first("relay")
        assert not scene.relay.ended

    play(act)


def test_chain_that_comes_back_to_a_removed_instances_model_goes_on_where_another_one_is_idle() -> (
    None
):
    def act(scene: Scene) -> None:
        scene.give_instances("relay", 2)
        scene.relay.execute()
        assert scene.call(scene.relay, "free") == ""
        scene.free.execute()
        assert scene.call(scene.free, "relay") == ""
        scene.remove_first("relay")
        assert not scene.relay.ended
        assert not scene.free.ended

    play(act)
