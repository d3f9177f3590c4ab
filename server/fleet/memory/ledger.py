"""Who holds how much memory of which device, and who may have more. Pure.

The one ledger of the server: every load asks it before anything is loaded, and what it granted is
returned when the version is closed or its load fails. It knows budgets and grants, never how much
memory happens to be free. `server.fleet.memory.grants` asks it and acts on its answers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from backends.footprint import MemoryRequirement

MIB = 1 << 20
SHOWN = 4
"""How many holders a refusal names."""


@dataclass(frozen=True, slots=True)
class MemoryGrant:
    """`bytes` of `device`'s memory for `holder`, of which it cannot do without `least`; it was
    granted `full` when it asked."""

    number: int
    device: str
    holder: str
    bytes: int
    least: int
    full: int


class GrowthOffer(NamedTuple):
    """So many bytes may return to who gave them back."""

    grant: MemoryGrant
    bytes: int


class DeviceAccount(NamedTuple):
    """One device: its budget (None: unbounded), and its grants, the largest first."""

    device: str
    budget: int | None
    grants: tuple[MemoryGrant, ...]

    @property
    def granted(self) -> int:
        return sum(grant.bytes for grant in self.grants)


class Eviction(NamedTuple):
    """Whom to evict for so many bytes. Nobody where that would not be enough: then `held` says who
    stays and why, and `may_pass` whether waiting can help."""

    victims: tuple[str, ...]
    held: tuple[str, ...]
    may_pass: bool


class OverBudget(Exception):
    """A need that its device's budget has no room for; the message says who holds what.
    `may_pass`: those who hold it are only busy now."""

    may_pass = False


def _any(_grant: MemoryGrant) -> bool:
    return True


class MemoryLedger:
    """`budgets`: bytes by device, such as "cpu" or "cuda:0"; a device not in it is unbounded."""

    def __init__(self, budgets: Mapping[str, int]) -> None:
        self._budgets = dict(budgets)
        self._grants: dict[int, MemoryGrant] = {}
        self._last = 0

    def free(self, device: str) -> int | None:
        """Bytes nobody was granted; None where there is no budget. Negative where corrections
        found more in use than was granted."""
        budget = self._budgets.get(device)
        return None if budget is None else budget - self._granted(device)

    def could_hold(self, device: str, need: MemoryRequirement) -> bool:
        """Whether the whole budget is enough for it, its load included."""
        budget = self._budgets.get(device)
        return budget is None or need.least + need.loading <= budget

    def lacking(self, device: str, need: MemoryRequirement) -> int:
        """How many bytes would have to be given back before `ask` grants `need`; 0 for none."""
        free = self.free(device)
        return 0 if free is None else max(0, need.least - free)

    def ask(self, device: str, holder: str, need: MemoryRequirement) -> MemoryGrant:
        """Grant at least what is needed, more of it while half of what else is free stays free.

        Raises OverBudget, with nothing changed.
        """
        free = self.free(device)
        if free is not None and need.least > free:
            raise OverBudget(self._refusal(device, holder, need.least))
        extra = need.wanted - need.least
        if free is not None:
            extra = min(extra, (free - need.least) // 2)
        self._last += 1
        bytes = need.least + extra
        grant = MemoryGrant(self._last, device, holder, bytes, need.least, bytes)
        self._grants[grant.number] = grant
        return grant

    def correct(self, grant: MemoryGrant, bytes: int) -> MemoryGrant:
        """What the holder of a grant really has now, be it more or less; the grant as it is now.

        One that was released already stays so.
        """
        corrected = replace(grant, bytes=bytes, least=min(grant.least, bytes))
        if grant.number in self._grants:
            self._grants[grant.number] = corrected
        return corrected

    def settle(self, grant: MemoryGrant, bytes: int) -> MemoryGrant:
        """As `correct`, for good: the holder is not offered what it has asked for beyond that."""
        settled = replace(self.correct(grant, bytes), full=bytes)
        if grant.number in self._grants:
            self._grants[grant.number] = settled
        return settled

    def release(self, grant: MemoryGrant) -> None:
        """Take a grant back; a second time changes nothing."""
        self._grants.pop(grant.number, None)

    def elastic(self, device: str) -> Sequence[MemoryGrant]:
        """Grants of `device` with more than their holders need, those with most to spare first."""
        held = (grant for grant in self._of(device) if grant.bytes > grant.least)
        return sorted(held, key=lambda grant: (grant.least - grant.bytes, grant.number))

    def offers(self, may_grow: Callable[[MemoryGrant], bool] = _any) -> Sequence[GrowthOffer]:
        """What may return to those who gave back for others and can take it again, while half of
        what is free stays so; those who lack most first."""
        able = filter(may_grow, self._grants.values())
        poorest = sorted(able, key=lambda one: (one.bytes - one.full, one.number))
        left = {device: self.free(device) for device in {one.device for one in poorest}}
        offers = []
        for grant in poorest:
            free = left[grant.device]
            bytes = grant.full - grant.bytes
            bytes = bytes if free is None else min(bytes, max(0, free) // 2)
            if bytes > 0:
                offers.append(GrowthOffer(grant, bytes))
                left[grant.device] = None if free is None else free - bytes
        return offers

    def accounts(self) -> tuple[DeviceAccount, ...]:
        """Every device that has a budget or a grant, by name."""
        devices = {*self._budgets, *(grant.device for grant in self._grants.values())}
        return tuple(
            DeviceAccount(device, self._budgets.get(device), tuple(self._of(device)))
            for device in sorted(devices)
        )

    def _granted(self, device: str) -> int:
        return sum(grant.bytes for grant in self._of(device))

    def _of(self, device: str) -> list[MemoryGrant]:
        """The largest first."""
        held = [grant for grant in self._grants.values() if grant.device == device]
        return sorted(held, key=lambda grant: (-grant.bytes, grant.number))

    def _refusal(self, device: str, holder: str, least: int) -> str:
        budget = self._budgets[device]
        wants = f"{holder} needs {mib(least)} of {device}'s memory"
        remedy = f"or give more with --memory-budget={device}=SIZE"
        if least > budget:
            return f"{wants}, and the whole budget is {mib(budget)}; make it smaller, {remedy}"
        free = budget - self._granted(device)
        return (
            f"{wants}, and of the budget of {mib(budget)} {mib(max(0, free))} are left: "
            f"{_grants_text(self._of(device))}; unload one of them, {remedy}"
        )


def _grants_text(grants: Sequence[MemoryGrant]) -> str:
    """ "a version 1 has 3 MiB, b version 2 has 1 MiB, and 5 more have 2 MiB"."""
    lines = [f"{grant.holder} has {mib(grant.bytes)}" for grant in grants[:SHOWN]]
    if rest := grants[SHOWN:]:
        lines.append(f"and {len(rest)} more have {mib(sum(grant.bytes for grant in rest))}")
    return ", ".join(lines)


def mib(bytes: int) -> str:
    """Rounded up, so that what is said to be enough is."""
    return f"{-(-bytes // MIB)} MiB"
