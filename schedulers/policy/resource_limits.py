"""The rate limiter: which instance may execute, by resources that executions hold. Pure policy.

`schedulers.rate_limited` asks before a batch starts and says when it has ended. Source of the
semantics: Triton's `rate_limiter.cc` (`--rate-limit=execution_count`) and
`ModelInstanceGroup.rate_limiter`. Two things differ. Who waits with the fewest executions, times
its priority, is first, but an instance that was idle, or is new, gets no credit for what it has not
executed: it would keep the others waiting until it had caught up. And an instance waits only for
those before it that need what it needs.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from schedulers.policy.cores import Waiter

GLOBAL = -1
"""The device of a resource that all devices share."""
EVERY_DEVICE = -2
"""Of a count on the command line: so many on each device."""


class Resource(NamedTuple):
    """A resource of one device, or of the whole server (`GLOBAL`)."""

    name: str
    device: int


class InstanceLimit(NamedTuple):
    """What one execution of an instance holds, and how its executions weigh: with priority 2 it
    gets half the chances of one with 1."""

    needs: Mapping[Resource, int]
    priority: int = 1


class ResourceUsage(NamedTuple):
    """A resource now: copies there are, copies held, instances that wait for some; and how often
    one had to wait."""

    resource: Resource
    copies: int
    in_use: int
    waiting: int
    waits: int


class Shortage(NamedTuple):
    """Copies of a resource: that an execution needs, that are held, and that there are."""

    resource: Resource
    needed: int
    held: int
    copies: int


class ResourceError(Exception):
    """Resources that can never be had, in Triton's words and with what there is."""


@dataclass(slots=True, eq=False)
class _Entry:
    """One registered instance. `turn`: executions so far, times its priority, as far as they
    count; `since`: the place in the queue, 0 while it does not wait. `calls`: it holds what it
    needs while its model waits for another one."""

    limit: InstanceLimit
    turn: int = 0
    holds: bool = False
    calls: bool = False
    since: int = 0
    who: Waiter | None = None

    @property
    def place(self) -> tuple[int, int]:
        return self.turn, self.since


@dataclass(slots=True)
class _Count:
    """Of one resource."""

    in_use: int = 0
    waits: int = 0
    entries: dict[object, _Entry] = field(default_factory=dict)


class ResourceLimiter:
    """Grants resources to executions; never more than there are.

    Without counts of its own, a resource has as many copies as the instance that needs most of it.
    """

    def __init__(self, counts: Mapping[Resource, int] | None = None) -> None:
        """`counts`: copies by resource, on a device, on `EVERY_DEVICE` or both; once one is given,
        a resource that is not there has none."""
        self._given = dict(counts or {})
        self._entries: dict[object, _Entry] = {}
        self._counts: dict[Resource, _Count] = {}
        self._last = 0

    def check(self, limits: Iterable[InstanceLimit], beside: Iterable[object] = ()) -> None:
        """Raise ResourceError where an execution of `limits` could never be granted. `beside`:
        instances that these replace."""
        limits, leaving = list(limits), set(beside)
        others = [one.limit for key, one in self._entries.items() if key not in leaving]
        devices: dict[str, set[bool]] = {}
        for limit in (*others, *limits):
            for resource in limit.needs:
                devices.setdefault(resource.name, set()).add(resource.device == GLOBAL)
        for limit in limits:
            for resource, needed in limit.needs.items():
                if len(devices[resource.name]) > 1:
                    raise ResourceError(
                        f'Resource "{resource.name}" is present as both global and device-specific '
                        "resource in the model configuration."
                    )
                self._check_count(resource, needed)

    def register(self, limits: Mapping[Any, InstanceLimit]) -> None:
        """Know these instances from now on, or their new limits; what they hold, they keep.

        Raises ResourceError, as `check`, and changes nothing then.
        """
        self.check(limits.values(), limits)
        for key, limit in limits.items():
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = _Entry(limit)
            elif entry.limit != limit:
                self._drop(key, entry)
                entry.limit = limit
                self._count(entry, 1 if entry.holds else 0)
            for resource in limit.needs:
                self._counts.setdefault(resource, _Count()).entries[key] = entry

    def unregister(self, key: object) -> None:
        """The instance is closed; it gives back what it holds."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._drop(key, entry)

    def may_start(self, key: object, who: Waiter) -> bool:
        """Whether an execution may start now. If not, the instance waits until it does or `leave`s,
        and what it needs is kept for it from those behind it."""
        entry = self._entries[key]
        if not entry.limit.needs:
            return True
        if not entry.since:
            self._join(entry)
        if self._fits(entry):
            if entry.who is None:
                entry.since = 0
            return True
        if entry.who is None:
            for resource in entry.limit.needs:
                self._counts[resource].waits += 1
        entry.who = who
        return False

    def take(self, key: object) -> None:
        """The execution starts; only after `may_start`, before anybody else's."""
        entry = self._entries[key]
        if not self._fits(entry) or entry.holds:
            raise RuntimeError("resources were taken that are not there. This is a bug.")
        entry.since, entry.who = 0, None
        entry.turn += entry.limit.priority
        entry.holds = True
        self._count(entry, 1)

    def give(self, key: object) -> None:
        """The execution has ended; the caller wakes `ready`."""
        entry = self._entries.get(key)
        if entry is not None and entry.holds:
            entry.holds = entry.calls = False
            self._count(entry, -1)

    def waits_for_call(self, key: object) -> None:
        """Its model has called another one: until its execution ends, nothing is kept for those who
        need what it holds; the caller wakes `ready`."""
        if (entry := self._entries.get(key)) is not None:
            entry.calls = entry.holds

    def registered(self) -> Collection[object]:
        """Every registered instance."""
        return self._entries.keys()

    def shortage(self, key: object, holders: Collection[object]) -> Shortage | None:
        """What an execution of `key` can never have while `holders` keep what they hold."""
        entry = self._entries.get(key)
        return None if entry is None else self.shortage_of(entry.limit, holders)

    def shortage_of(self, limit: InstanceLimit, holders: Collection[object]) -> Shortage | None:
        """`shortage` of an instance with this limit, which need not be registered yet."""
        held = [e.limit for one in holders if (e := self._entries.get(one)) is not None and e.holds]
        for resource, needed in limit.needs.items():
            in_use = sum(one.needs.get(resource, 0) for one in held)
            if not in_use:
                continue
            copies = self._copies(resource) if self._given else max(self._copies(resource), needed)
            if needed > copies - in_use:
                return Shortage(resource, needed, in_use, copies)
        return None

    def leave(self, who: Waiter, keep: Collection[object] = ()) -> None:
        """`who` waits with none of its instances any more but those in `keep`."""
        for key, entry in self._entries.items():
            if entry.who is who and key not in keep:
                entry.since, entry.who = 0, None

    def ready(self) -> list[Waiter]:
        """Who waits for what it could have now, each once."""
        found = {id(e.who): e.who for e in self._entries.values() if e.who and self._fits(e)}
        return list(found.values())

    def turn(self, key: object) -> int:
        """Of several instances the one with the least is to execute."""
        return self._entries[key].turn

    def usage(self) -> list[ResourceUsage]:
        """Every resource that an instance needs, by name and device."""
        return [
            ResourceUsage(
                resource,
                self._copies(resource),
                one.in_use,
                sum(entry.who is not None for entry in one.entries.values()),
                one.waits,
            )
            for resource, one in sorted(self._counts.items())
            if one.entries
        ]

    def _check_count(self, resource: Resource, needed: int) -> None:
        if not self._given:
            return
        there = self._copies(resource)
        if there < needed:
            given = ", ".join(f"{_text(one)}: {count}" for one, count in self._given.items())
            raise ResourceError(
                f'Resource count for "{resource.name}" is limited to {there} which will prevent '
                "scheduling of one or more model instances, the minimum required count is "
                f"{needed}; there are {given} (--rate-limit-resource)"
            )

    def _copies(self, resource: Resource) -> int:
        given = self._given
        if not given:
            needs = (e.limit.needs[resource] for e in self._counts[resource].entries.values())
            return max(needs, default=0)
        if resource.device == GLOBAL:
            return max((n for one, n in given.items() if one.name == resource.name), default=0)
        every = Resource(resource.name, EVERY_DEVICE)
        return max(given.get(resource, 0), given.get(every, 0))

    def _fits(self, entry: _Entry) -> bool:
        """Whether all it needs is there, beside what is held and what those before it wait for."""
        for resource, needed in entry.limit.needs.items():
            count = self._counts[resource]
            kept = sum(
                other.limit.needs[resource]
                for other in count.entries.values()
                if other.who is not None
                and other is not entry
                and other.place < entry.place
                and not self._waits_for_callers(other)
            )
            if count.in_use + kept + needed > self._copies(resource):
                return False
        return True

    def _waits_for_callers(self, entry: _Entry) -> bool:
        """Whether it cannot have what it needs before a model that calls others has its answers,
        which may need what would be kept."""
        for resource, needed in entry.limit.needs.items():
            held = sum(
                other.limit.needs[resource]
                for other in self._counts[resource].entries.values()
                if other.calls
            )
            if held and needed > self._copies(resource) - held:
                return True
        return False

    def _join(self, entry: _Entry) -> None:
        """Give it a place among those that execute or wait now for what it needs: not so far
        before them, nor behind them, that one of them would wait for ever."""
        self._last += 1
        entry.since = self._last
        active = [
            other
            for resource in entry.limit.needs
            for other in self._counts[resource].entries.values()
            if other is not entry and (other.holds or other.who is not None)
        ]
        if active:
            least = min(other.turn - other.limit.priority for other in active)
            most = min(other.turn for other in active) + entry.limit.priority
            entry.turn = min(max(entry.turn, least), most)

    def _count(self, entry: _Entry, sign: int) -> None:
        for resource, needed in entry.limit.needs.items():
            self._counts.setdefault(resource, _Count()).in_use += sign * needed

    def _drop(self, key: object, entry: _Entry) -> None:
        """Out of the counts, with what it holds."""
        if entry.holds:
            self._count(entry, -1)
        entry.since, entry.who = 0, None
        for resource in entry.limit.needs:
            del self._counts[resource].entries[key]


def device_text(device: int) -> str:
    """A resource's device for people: its number, or "global"."""
    return "global" if device == GLOBAL else str(device)


def _text(resource: Resource) -> str:
    where = "" if resource.device == EVERY_DEVICE else f" on device {resource.device}"
    return resource.name + where
