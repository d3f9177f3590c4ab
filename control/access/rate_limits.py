"""Who asks too often, and who guesses too often: arithmetic on the time it is told. Pure.

One owner each, the event loop: nothing here is safe for threads.
"""

from collections import OrderedDict
from ipaddress import ip_address
from math import ceil

MOST_KEYS = 10_000
_LOOKS = 8

_Key = tuple[str, str, str]
"""What is counted, account and network; "" for whichever."""


class RateBucket:
    """A token bucket as one number: the moment at which it will be full again."""

    __slots__ = ("full_at",)

    def __init__(self) -> None:
        self.full_at = 0.0

    def take(self, rate: float, burst: float, now: float, cost: float = 1.0) -> float:
        """0.0 and it is taken, or the seconds until it can be; then nothing was taken.

        `rate` in tokens a second, at most `burst` of them saved up; `now` in monotonic seconds. A
        `cost` above `burst` waits for a full bucket, and leaves a debt.
        """
        starts = self.full_at if self.full_at > now else now
        wait = starts - now - (burst - cost if cost < burst else 0.0) / rate
        if wait > 1e-6:  # less is rounding: who waited as long as was said may pass
            return wait
        self.full_at = starts + cost / rate
        return 0.0


class RateLimiter:
    """A bucket per key, for the `most` keys that asked last; the others' are taken as full."""

    def __init__(self, most: int = MOST_KEYS) -> None:
        self._most = most
        self._buckets: OrderedDict[str, RateBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: str, rate: float, burst: float, now: float, cost: float = 1.0) -> float:
        """As `RateBucket.take`, for the bucket of `key`."""
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= self._most:
                self._make_room(now)
            bucket = self._buckets[key] = RateBucket()
        return bucket.take(rate, burst, now, cost)

    def _make_room(self, now: float) -> None:
        """A full bucket goes first: it is as if it had never been. Otherwise the oldest goes."""
        for _ in range(_LOOKS):
            key, bucket = self._buckets.popitem(last=False)
            if bucket.full_at <= now:
                return
            self._buckets[key] = bucket
        self._buckets.popitem(last=False)


class LoginThrottle:
    """Failed logins per account and address together: after a few, each one doubles the wait.

    An account from wherever, and an address on whichever accounts, are counted as well, with more
    patience: one slows down who guesses from many places, the other who tries one password on many
    accounts. Neither holds up an account at an address where it got in lately, so that nobody can
    keep others out of theirs, behind a proxy that all share for instance. No wait is longer than
    a minute.

    Checking a password is slow: call `failed` before and `succeeded` after it, so that many
    guesses at the same time count as many.
    """

    FREE, FREE_SHARED = 5, 20
    FIRST_S, LONGEST_S = 1.0, 60.0
    FORGOTTEN_S = 3600.0

    def __init__(self, most: int = MOST_KEYS) -> None:
        self._most = most
        self._failed: OrderedDict[_Key, tuple[int, float]] = OrderedDict()
        self._good: OrderedDict[_Key, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failed) + len(self._good)

    def wait(self, name: str, address: str, now: float) -> float:
        """Seconds until the next try is taken, 0.0 for now."""
        pair, *shared = _keys(name, address)
        counted = [pair] if pair in self._good else [pair, *shared]
        return max(self._wait(key, now) for key in counted)

    def failed(self, name: str, address: str, now: float) -> None:
        for key in _keys(name, address):
            self._failed[key] = self._count(key, now) + 1, now
            self._failed.move_to_end(key)
        while len(self._failed) > self._most:
            self._failed.popitem(last=False)

    def succeeded(self, name: str, address: str) -> None:
        """Forget the account's failures, but take back only one of the address's: it may have an
        account of its own to log in to between two guesses."""
        pair, by_name, by_address = _keys(name, address)
        for key in (pair, by_name):
            self._failed.pop(key, None)
        if by_address in self._failed:
            count, at = self._failed[by_address]
            self._failed[by_address] = max(count - 1, 0), at
        self._good[pair] = None
        self._good.move_to_end(pair)
        if len(self._good) > self._most:
            self._good.popitem(last=False)

    def _wait(self, key: _Key, now: float) -> float:
        free = self.FREE if key[0] == "pair" else self.FREE_SHARED
        beyond = self._count(key, now) - free + 1
        if beyond <= 0:
            return 0.0
        pause = min(self.FIRST_S * 2.0 ** min(beyond - 1, 60), self.LONGEST_S)
        return max(0.0, self._failed[key][1] + pause - now)

    def _count(self, key: _Key, now: float) -> int:
        count, at = self._failed.get(key, (0, now))
        return count if now - at < self.FORGOTTEN_S else 0


def whole_seconds(wait_s: float) -> str:
    """The wait as a person reads it, never shorter than it is: "1 second", "32 seconds"."""
    whole = max(1, ceil(wait_s))
    return "1 second" if whole == 1 else f"{whole} seconds"


def network_of(address: str) -> str:
    """What one client has: an IPv4 address, or the /64 of an IPv6 one; other texts as they are."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address[:255]
    if parsed.version == 4:
        return str(parsed)
    mapped = parsed.ipv4_mapped
    return str(mapped) if mapped else f"{int(parsed) >> 64:x}::/64"


def _keys(name: str, address: str) -> tuple[_Key, _Key, _Key]:
    account, network = name[:255], network_of(address)
    return ("pair", account, network), ("name", account, ""), ("address", "", network)
