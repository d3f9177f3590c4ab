"""What something costs beside something else, on a machine that has other work as well."""

from collections.abc import Callable

ROUNDS = 6


def costs_less_than(times: float, dear: Callable[[], float], cheap: Callable[[], float]) -> bool:
    """Whether `dear` takes less than `times` the CPU seconds that `cheap` takes, the quickest of up
    to six rounds of each: what else runs makes a round slower, never quicker."""
    dear_s = cheap_s = float("inf")
    for _ in range(ROUNDS):
        dear_s, cheap_s = min(dear_s, dear()), min(cheap_s, cheap())
        if dear_s < times * cheap_s:
            return True
    return False
