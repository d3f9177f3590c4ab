"""The rate limiter's policy: never more than there is, nobody waits for ever."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from schedulers.policy.resource_limits import (
    EVERY_DEVICE,
    GLOBAL,
    InstanceLimit,
    Resource,
    ResourceError,
    ResourceLimiter,
    Shortage,
)


class Model:
    """A scheduler with work without end."""

    def wake(self) -> None:
        pass


def needs(name: str = "R", count: int = 1, device: int = 0, priority: int = 1) -> InstanceLimit:
    return InstanceLimit({Resource(name, device): count}, priority)


def limiter_of(
    limits: dict[str, InstanceLimit], counts: dict[Resource, int] | None = None
) -> ResourceLimiter:
    limiter = ResourceLimiter(counts)
    limiter.register(dict(limits))
    return limiter


def run(limiter: ResourceLimiter, keys: list[str], executions: int) -> Counter[str]:
    """Each instance always wants to execute; executions end in the order of their starts."""
    models = {key: Model() for key in keys}
    running: list[str] = []
    done: Counter[str] = Counter()
    while sum(done.values()) < executions:
        for key in sorted(models, key=limiter.turn):
            if key not in running and limiter.may_start(key, models[key]):
                limiter.take(key)
                running.append(key)
        ended = running.pop(0)
        limiter.give(ended)
        done[ended] += 1
    return done


@pytest.mark.parametrize(
    ("priorities", "shares"),
    [
        ((1, 1), (50, 50)),
        ((0, 1), (50, 50)),
        ((1, 2), (67, 33)),
        ((2, 1), (33, 67)),
        ((1, 2, 4), (57, 29, 14)),
        ((3, 3, 3), (33, 33, 33)),
    ],
)
def test_executions_are_shared_by_priority(
    priorities: tuple[int, ...], shares: tuple[int, ...]
) -> None:
    limits = {str(at): needs(priority=max(1, one)) for at, one in enumerate(priorities)}
    done = run(limiter_of(limits), list(limits), 1000)
    for at, share in enumerate(shares):
        assert done[str(at)] == pytest.approx(share * 10, abs=10)


COUNTS = [
    ({}, {"a": needs(count=4), "b": needs(count=2)}, {Resource("R", 0): 4}),
    ({}, {"a": needs(device=0), "b": needs(device=1)}, {Resource("R", 0): 1, Resource("R", 1): 1}),
    (
        {Resource("R", EVERY_DEVICE): 10, Resource("R", 1): 3},
        {"a": needs(device=0), "b": needs(device=1)},
        {Resource("R", 0): 10, Resource("R", 1): 10},
    ),
    ({Resource("G", 3): 7}, {"a": needs("G", 5, GLOBAL)}, {Resource("G", GLOBAL): 7}),
]


@pytest.mark.parametrize(("given", "limits", "there"), COUNTS)
def test_copies_are_what_was_given_or_what_the_largest_need_is(
    given: dict[Resource, int],
    limits: dict[str, InstanceLimit],
    there: dict[Resource, int],
) -> None:
    usage = limiter_of(limits, given).usage()
    assert {one.resource: one.copies for one in usage} == there


def test_copies_shrink_when_the_instance_that_needs_most_is_closed() -> None:
    limiter = limiter_of({"a": needs(count=4), "b": needs(count=2)})
    limiter.unregister("a")
    (usage,) = limiter.usage()
    assert usage.copies == 2


def test_what_could_never_be_granted_is_refused_in_tritons_words_and_changes_nothing() -> None:
    limiter = limiter_of({"a": needs(count=2)}, {Resource("R", EVERY_DEVICE): 3})
    with pytest.raises(ResourceError) as caught:
        limiter.register({"b": needs(count=4)})
    assert str(caught.value) == (
        'Resource count for "R" is limited to 3 which will prevent scheduling of one or more model '
        "instances, the minimum required count is 4; there are R: 3 (--rate-limit-resource)"
    )
    assert [one.resource for one in limiter.usage()] == [Resource("R", 0)]
    with pytest.raises(ResourceError, match='"S" is limited to 0'):
        limiter.register({"b": needs("S")})


def test_a_resource_is_global_or_of_devices_but_not_both() -> None:
    limiter = limiter_of({"a": needs(device=GLOBAL)})
    with pytest.raises(ResourceError, match='Resource "R" is present as both global and device-s'):
        limiter.register({"b": needs(device=0)})
    limiter.register({"a": needs(device=0)})  # its own limits may change


def test_what_the_first_in_line_needs_is_kept_from_those_behind_it() -> None:
    limiter = limiter_of(
        {"small": needs(), "other": needs(), "large": needs(count=3), "apart": needs("S")}
    )
    small, large = Model(), Model()
    assert limiter.may_start("small", small)
    limiter.take("small")
    assert not limiter.may_start("large", large)
    assert not limiter.may_start("other", Model())
    assert limiter.may_start("apart", Model())
    limiter.give("small")
    assert limiter.ready() == [large]
    assert not limiter.may_start("small", small)
    limiter.leave(large)
    assert limiter.may_start("small", small)


def test_one_that_is_new_or_was_idle_does_not_keep_the_others_waiting() -> None:
    limits = {"busy": needs(), "idle": needs()}
    limiter = limiter_of(limits)
    run(limiter, ["busy"], 1000)
    limiter.register({"new": needs()})
    done = run(limiter, ["busy", "idle", "new"], 30)
    assert min(done.values()) >= 9


def test_an_instance_that_is_closed_while_it_executes_gives_back_what_it_holds() -> None:
    limiter = limiter_of({"a": needs(), "b": needs()})
    model = Model()
    assert limiter.may_start("a", model)
    limiter.take("a")
    assert not limiter.may_start("b", model)
    limiter.unregister("a")
    assert limiter.ready() == [model]
    limiter.give("a")  # its thread ends later
    assert limiter.usage()[0].in_use == 0


def test_limits_that_change_while_an_instance_executes_are_counted_anew() -> None:
    limiter = limiter_of({"a": needs(count=2), "b": needs(count=1)})
    assert limiter.may_start("a", Model())
    limiter.take("a")
    limiter.register({"a": needs("S", 3)})
    assert {one.resource.name: one.in_use for one in limiter.usage()} == {"R": 0, "S": 3}
    limiter.give("a")
    assert {one.resource.name: one.in_use for one in limiter.usage()} == {"R": 0, "S": 0}


def test_instances_without_needs_never_wait() -> None:
    limiter = limiter_of({"a": needs(), "free": InstanceLimit({})})
    assert limiter.may_start("a", Model())
    limiter.take("a")
    assert limiter.may_start("free", Model())
    limiter.take("free")
    limiter.give("free")
    assert limiter.usage()[0].in_use == 1


NAMES = st.sampled_from(["R", "S"])
LIMITS = st.builds(
    InstanceLimit,
    st.dictionaries(
        st.builds(Resource, NAMES, st.sampled_from([0, 1])), st.integers(1, 4), max_size=3
    ),
    st.integers(1, 5),
)


class AnyUse(RuleBasedStateMachine):
    """Instances come, want to execute, execute, change and go in any order."""

    def __init__(self) -> None:
        super().__init__()
        counts = {Resource(name, EVERY_DEVICE): 5 for name in ("R", "S")}
        self.limiter = ResourceLimiter(counts)
        self.limits: dict[int, InstanceLimit] = {}
        self.models: dict[int, Model] = {}
        self.holding: dict[int, InstanceLimit] = {}
        self.overtaken: Counter[int] = Counter()
        self.waiting: set[int] = set()
        self.last = 0

    @rule(limit=LIMITS)
    def come(self, limit: InstanceLimit) -> None:
        if len(self.limits) < 8:
            self.last += 1
            self.limiter.register({self.last: limit})
            self.limits[self.last], self.models[self.last] = limit, Model()

    @precondition(lambda self: self.limits)
    @rule(data=st.data())
    def want(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.limits)))
        if key not in self.holding:
            self.ask(key)

    def ask(self, key: int) -> None:
        if not self.limiter.may_start(key, self.models[key]):
            self.waiting.add(key)
            return
        self.limiter.take(key)
        self.waiting.discard(key)
        self.overtaken[key] = 0
        self.holding[key] = self.limits[key]
        for other in self.waiting:
            if self.limits[other].needs.keys() & self.limits[key].needs.keys():
                self.overtaken[other] += 1

    @precondition(lambda self: self.holding)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.holding)))
        del self.holding[key]
        self.limiter.give(key)
        self.wake()

    @precondition(lambda self: self.limits)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.limits)))
        self.limiter.unregister(key)
        for known in (self.limits, self.models, self.holding):
            known.pop(key, None)
        self.waiting.discard(key)
        self.wake()

    def wake(self) -> None:
        by_model = {id(model): key for key, model in self.models.items()}
        for model in self.limiter.ready():
            self.ask(by_model[id(model)])

    @invariant()
    def no_more_is_held_than_there_is(self) -> None:
        held: Counter[Resource] = Counter()
        for limit in self.holding.values():
            held.update(limit.needs)
        for usage in self.limiter.usage():
            assert usage.in_use == held[usage.resource] <= usage.copies

    @invariant()
    def nobody_waits_while_nothing_is_held(self) -> None:
        if not self.holding:
            assert not self.waiting or self.limiter.ready()

    @invariant()
    def nobody_is_overtaken_for_ever(self) -> None:
        assert max(self.overtaken.values(), default=0) < 60


AnyUse.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
test_any_use = AnyUse.TestCase


def test_nothing_is_kept_for_who_needs_what_a_caller_holds_until_it_is_answered() -> None:
    limiter = limiter_of(
        {"caller": needs(), "wide": needs(count=2), "callee": needs()}, {Resource("R", 0): 2}
    )
    assert limiter.may_start("caller", Model())
    limiter.take("caller")
    assert not limiter.may_start("wide", Model())
    assert not limiter.may_start("callee", Model()), "it is kept for the first in line"
    limiter.waits_for_call("caller")
    assert limiter.may_start("callee", Model())
    limiter.take("callee")
    limiter.give("callee")
    limiter.give("caller")
    assert limiter.may_start("wide", Model())


def test_shortage_is_what_holders_leave_too_little_of() -> None:
    limiter = limiter_of(
        {"caller": needs(), "callee": needs(count=2), "other": needs("Q")},
        {Resource("R", 0): 2, Resource("Q", 0): 1},
    )
    assert limiter.may_start("caller", Model())
    limiter.take("caller")
    lack = limiter.shortage("callee", ["caller"])
    assert lack == Shortage(Resource("R", 0), 2, 1, 2)
    assert limiter.shortage("other", ["caller"]) is None
    assert limiter.shortage("callee", []) is None
