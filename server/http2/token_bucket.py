"""How much of what costs us and serves nobody one peer may send. Pure: the time is an argument."""


class TokenBucket:
    """A budget that refills with time."""

    def __init__(self, burst: int, per_second: float, now: float) -> None:
        self._burst = burst
        self._per_second = per_second
        self._left = float(burst)
        self._last = now

    def spend(self, now: float, cost: int = 1) -> bool:
        """Take `cost`; whether it was there. `now` in seconds, never going back."""
        self._left = min(self._burst, self._left + (now - self._last) * self._per_second) - cost
        self._last = now
        return self._left >= 0
