"""Who waits for whom, over all instances that call other models: no circle is left to wait."""

from collections.abc import Collection, Iterable
from typing import Protocol

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


class Waiting:
    """On the loop's thread. Only calls of an execution count: what a decoupled model does after it
    has taken a request in keeps its instance from nothing."""

    def __init__(self, surroundings: ScriptSurroundings) -> None:
        self._surroundings = surroundings
        self._of_callers: dict[Caller, dict[int, frozenset[Version]]] = {}

    def begin(self, caller: Caller, request: CallRequest, context: CallContext) -> str:
        """Count a call that was accepted. Its refusal, where it can never be answered; "" else."""
        if not caller.instance.activity.executing:
            return ""
        caller.instance.waits()
        callees = self._callees(request.model, request.version, context)
        waiting = self._of_callers.setdefault(caller, {})
        waiting[request.number] = frozenset(callees)
        versions = {_version(one): None for one in self._of_callers}
        if not versions.keys().isdisjoint(callees) and (refusal := self._refusal(caller, versions)):
            return refusal
        limiter = self._surroundings.limiter
        return "" if limiter is None else self._lacking(caller, limiter)

    def end(self, caller: Caller, number: int) -> None:
        """A call has its answer."""
        waiting = self._of_callers.get(caller)
        if waiting is not None:
            waiting.pop(number, None)
            if not waiting:
                del self._of_callers[caller]

    def _refusal(self, caller: Caller, versions: Iterable[Version]) -> str:
        waits: dict[Version, list[frozenset[Version]]] = {}
        for one, calls in self._of_callers.items():
            waits.setdefault(_version(one), []).append(frozenset().union(*calls.values()))
        surroundings = self._surroundings
        counts = {version: len(surroundings.instances(*version)) for version in versions}
        circle = find_circle(waits, counts, _version(caller))
        if not circle:
            return ""
        names = " → ".join(f"'{name}' version {number}" for name, number in circle)
        return (
            f"this call can never be answered: every instance waits for another one ({names}); "
            "give one of these models more instances, or let it not call back"
        )

    def _lacking(self, caller: Caller, limiter: ResourceLimiter) -> str:
        """The refusal of a call whose callee needs what is held by who waits for it."""
        keys = {id(getattr(key, "spec", None)): key for key in limiter.registered()}
        calls = {one: frozenset().union(*each.values()) for one, each in self._of_callers.items()}

        def held_by(stuck: Collection[Caller]) -> list[object]:
            found = (keys.get(id(one.instance.spec)) for one in stuck)
            return [key for key in found if key is not None]

        def can_run(version: Version, stuck: Collection[Caller]) -> bool:
            held, instances = held_by(stuck), self._surroundings.instances(*version)
            able = (one not in held and limiter.shortage(one, held) is None for one in instances)
            return not instances or any(able)

        stuck = stuck_callers(calls, can_run)
        if caller not in stuck:
            return ""
        version = next(one for one in calls[caller] if not can_run(one, stuck))
        instances, held = self._surroundings.instances(*version), held_by(stuck)
        lacks = (limiter.shortage(one, held) for one in instances if one not in held)
        return _lack_text(version, next(filter(None, lacks), None), map(_version, stuck))

    def _callees(self, model: str, version: int, context: CallContext) -> set[Version]:
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
                for step in served.version.config.ensemble_scheduling.step:
                    number = step.model_version
                    steps.append((step.model_name, "" if number < 0 else str(number)))
                if not served.version.config.ensemble_scheduling.step:
                    found.add((served.version.name, served.version.number))
            if not steps:
                break
            names = steps
        return found


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
