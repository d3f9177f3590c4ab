"""Who waits for whom, over all instances that call other models: no circle is left to wait."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from backends.process.call_link import CallingInstance
from backends.process.call_messages import CallRequest
from schedulers.policy.resource_limits import ResourceLimiter, Shortage
from schedulers.policy.waits import Version, find_circle, stuck_callers
from schedulers.request import CallContext
from server.bls.surroundings import ScriptSurroundings
from server.errors import ServingError

_MOST_NESTED = 16
"""Ensembles within ensembles whose steps are looked at."""


class Caller(Protocol):
    """A connection whose instance calls."""

    instance: CallingInstance

    def end_call(self, number: int, refusal: str) -> None:
        """Let this be what the script reads."""


class _Call(NamedTuple):
    """Of one execution of its caller, by number; what it waits for."""

    execution: int
    callees: frozenset[Version]


Calls = Mapping[Caller, frozenset[Version]]
"""What each instance waits for."""


class Waiting:
    """On the loop's thread. Only calls of an execution count: what a decoupled model does after it
    has taken a request in keeps its instance from nothing."""

    def __init__(self, surroundings: ScriptSurroundings) -> None:
        self._surroundings = surroundings
        self._of_callers: dict[Caller, dict[int, _Call]] = {}
        self._callers: Counter[Version] = Counter()

    def begin(self, caller: Caller, request: CallRequest, context: CallContext) -> str:
        """Count a call that was accepted. Its refusal, where it can never be answered; "" else."""
        activity = caller.instance.activity
        if not activity.executing:
            return ""
        caller.instance.waits()
        callees = self._callees(request.model, request.version, context)
        waiting = self._of_callers.get(caller)
        if waiting is None:
            waiting = self._of_callers[caller] = {}
            self._callers[_version(caller)] += 1
        waiting[request.number] = _Call(activity.executions, callees)
        limiter = self._surroundings.limiter
        if limiter is None and self._callers.keys().isdisjoint(callees):
            return ""  # nearly always: no callee calls anybody
        return self._never_answered(caller, self._awaited())

    def look_again(self) -> None:
        """Instances or limits of a version have changed: end the calls that can never be answered
        now. Each that has ended may let others go on."""
        calls = self._awaited()
        for caller, waiting in list(self._of_callers.items()):
            for number, call in list(waiting.items()):
                if caller not in calls or call.execution != caller.instance.activity.executions:
                    continue
                refusal = self._never_answered(caller, {**calls, caller: call.callees})
                if refusal:
                    self.end(caller, number)
                    caller.end_call(number, refusal)
                    calls = self._awaited()

    def end(self, caller: Caller, number: int) -> None:
        """A call has its answer."""
        waiting = self._of_callers.get(caller)
        if waiting is not None:
            waiting.pop(number, None)
            if not waiting:
                del self._of_callers[caller]
                version = _version(caller)
                self._callers[version] -= 1
                if not self._callers[version]:
                    del self._callers[version]

    def _never_answered(self, caller: Caller, calls: Calls) -> str:
        """Why what the caller waits for can never come; "" where it can."""
        versions = {_version(one): None for one in calls}
        may_close = not versions.keys().isdisjoint(calls.get(caller, ()))
        if may_close and (refusal := self._refusal(caller, calls, versions)):
            return refusal
        limiter = self._surroundings.limiter
        return "" if limiter is None else self._lacking(caller, calls, limiter)

    def _awaited(self) -> Calls:
        """What each instance waits for that executes. A call that an execution which has ended did
        not wait for keeps its instance from nothing."""
        found: dict[Caller, frozenset[Version]] = {}
        for caller, calls in self._of_callers.items():
            activity = caller.instance.activity
            now = [one.callees for one in calls.values() if one.execution == activity.executions]
            if activity.executing and now:
                found[caller] = frozenset().union(*now)
        return found

    def _refusal(self, caller: Caller, calls: Calls, versions: Iterable[Version]) -> str:
        """By the instances that take requests: one that is closed once its execution has ended may
        wait as well, but is none of those that a call to its version waits for."""
        instances = {version: self._surroundings.instances(*version) for version in versions}
        takes = {id(getattr(one, "spec", one)) for each in instances.values() for one in each}
        if id(caller.instance.spec) not in takes:
            return ""
        waits: dict[Version, list[frozenset[Version]]] = {}
        for one, callees in calls.items():
            if id(one.instance.spec) in takes:
                waits.setdefault(_version(one), []).append(callees)
        counts = {version: len(each) for version, each in instances.items()}
        circle = find_circle(waits, counts, _version(caller))
        if not circle:
            return ""
        names = " → ".join(f"'{name}' version {number}" for name, number in circle)
        return (
            f"this call can never be answered: every instance waits for another one ({names}); "
            "give one of these models more instances, or let it not call back"
        )

    def _lacking(self, caller: Caller, calls: Calls, limiter: ResourceLimiter) -> str:
        """The refusal of a call whose callee needs what is held by who waits for it."""
        keys = {id(getattr(key, "spec", None)): key for key in limiter.registered()}

        def held_by(stuck: Collection[Caller]) -> list[object]:
            found = (keys.get(id(one.instance.spec)) for one in stuck)
            return [key for key in found if key is not None]

        def can_run(version: Version, stuck: Collection[Caller]) -> bool:
            return None in self._shortages(version, held_by(stuck), limiter)

        stuck = stuck_callers(calls, can_run)
        if caller not in stuck:
            return ""
        version = next(one for one in calls[caller] if not can_run(one, stuck))
        lacks = self._shortages(version, held_by(stuck), limiter)
        return _lack_text(version, next(filter(None, lacks), None), map(_version, stuck))

    def _shortages(
        self, version: Version, held: Sequence[object], limiter: ResourceLimiter
    ) -> list[Shortage | None]:
        """What each instance of a version that does not wait itself lacks while `held` keep what
        they hold, None for nothing; by its config where it is to be loaded on demand."""
        registered, instances = limiter.registered(), self._surroundings.instances(*version)
        if any(one in registered for one in instances):
            return [limiter.shortage(one, held) for one in instances if one not in held]
        limits = self._surroundings.limits(*version)
        return [limiter.shortage_of(limit, held) for limit in limits] or [None]

    def _callees(self, model: str, version: int, context: CallContext) -> frozenset[Version]:
        """The version that answers, or, of an ensemble, those that its steps call."""
        found: set[Version] = set()
        names = [(model, "" if version < 0 else str(version))]
        for _ in range(_MOST_NESTED):
            steps: list[tuple[str, str]] = []
            for name, text in names:
                try:
                    served = self._surroundings.answering(name, text, context)
                except ServingError:
                    continue
                steps += served.steps
                if not served.steps:
                    found.add((served.signature.model, served.signature.version))
            if not steps:
                break
            names = steps
        return frozenset(found)


def _version(caller: Caller) -> Version:
    version = caller.instance.version
    return version.name, version.number


def _lack_text(version: Version, lack: Shortage | None, stuck: Iterable[Version]) -> str:
    callee = f"'{version[0]}' version {version[1]}"
    holders = ", ".join(sorted(f"'{name}' version {number}" for name, number in stuck))
    if lack is None:
        return f"this call can never be answered: every instance of {callee} waits for {holders}"
    name, most = lack.resource.name, lack.held + lack.needed
    return (
        f"this call can never be answered: {callee} needs {lack.needed} of the resource '{name}' "
        f"to execute, and of {lack.copies} there are {lack.held} held by {holders} until their "
        f"calls are answered; let there be {most} (--rate-limit-resource={name}:{most}), or let "
        "one of these models not need it"
    )
