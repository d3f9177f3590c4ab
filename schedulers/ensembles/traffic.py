"""How often each step of an ensemble ran, failed and was left out, and how long it took.

Written by the loop's thread; the console draws the graph with it.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class StepTraffic:
    """Calls of one step since the ensemble was loaded; nanoseconds from call to answer."""

    calls: int = 0
    failures: int = 0
    rows: int = 0
    total_ns: int = 0


class EnsembleTraffic:
    """Of each step by its number, and how many requests there were."""

    def __init__(self, steps: int) -> None:
        self.steps = [StepTraffic() for _ in range(steps)]
        self.requests = 0

    def called(self, number: int, rows: int, took_ns: int, *, failed: bool) -> None:
        step = self.steps[number]
        step.calls += 1
        step.failures += failed
        step.rows += rows
        step.total_ns += took_ns
