"""When an execution is short enough for the event loop's own thread. Pure policy.

`schedulers.batching` asks before each execution of an instance that is loop-safe (see
`backends.seam`), and tells what each took. A hand-over to the instance's thread and back was
measured at 44 µs, 28 of them in the kernel, so a shorter execution is cheaper without one.

Executions are told apart by their rows (to a factor of two), on which their time depends. What
counts is the thread's CPU time: on the clock an execution also waits for a core, and on a thread of
its own for the GIL.
"""

HANDOVER_NS = 40_000
"""Executions up to this long run on the loop whatever else is to do."""

SHORT_NS = 100_000
"""Executions up to this long run on the loop when nothing else of the version is under way."""

MOST_INLINE = 16
"""Executions on the loop in one turn; then connections are read again."""

STAY = 1.5
"""A size that runs on the loop stays there until it takes this many times the bound."""

LONG_NS = 1_000_000
"""One execution of so much CPU time, of a size that was short, closes the loop for the version."""

TRIALS = 16
"""Executions on the thread before a size may run on the loop."""

FIRST_PAUSE_NS, MOST_PAUSE_NS = 10_000_000_000, 3_600_000_000_000
"""How long the loop is closed for a version: for twice as long as before where it has been open
again for less than that. A machine that is interrupted by its hypervisor, whose time counts as CPU
time, has a long execution now and then of what is short."""


class _Size:
    """Executions of about as many rows: their `mean_ns`, a moving average over `trials` of them."""

    __slots__ = ("alone", "always", "mean_ns", "trials")

    def __init__(self, first_ns: int) -> None:
        self.mean_ns = first_ns
        self.trials = 0
        self.always = False
        self.alone = False

    def add(self, cpu_ns: int) -> None:
        self.mean_ns += (cpu_ns - self.mean_ns) // 8
        self.trials += 1
        if self.trials >= TRIALS:
            self.always = self.mean_ns <= (HANDOVER_NS * STAY if self.always else HANDOVER_NS)
            self.alone = self.mean_ns <= (SHORT_NS * STAY if self.alone else SHORT_NS)


class InlinePolicy:
    """Of one loaded version."""

    def __init__(self) -> None:
        self._sizes: dict[int, _Size] = {}
        self._pause_ns = 0
        self._closed_until_ns = 0

    def may_run(self, rows: int, alone: bool, now_ns: int) -> bool:
        """Whether an execution of so many rows runs on the loop now. `alone`: it is one request,
        and nothing else of the version is under way."""
        size = self._sizes.get(rows.bit_length())
        if size is None or now_ns < self._closed_until_ns:
            return False
        return size.always or (alone and size.alone)

    def ran(self, rows: int, cpu_ns: int, now_ns: int) -> None:
        """An execution has taken so much of its thread's CPU time, wherever it ran."""
        key = rows.bit_length()
        size = self._sizes.get(key)
        if size is None:
            size = self._sizes[key] = _Size(cpu_ns)
        was_short = size.trials and size.mean_ns <= SHORT_NS * STAY
        if cpu_ns >= LONG_NS and was_short and now_ns >= self._closed_until_ns:
            self._close(now_ns)
        else:
            size.add(cpu_ns)

    def _close(self, now_ns: int) -> None:
        soon = now_ns - self._closed_until_ns < self._pause_ns
        self._pause_ns = min(2 * self._pause_ns, MOST_PAUSE_NS) if soon else FIRST_PAUSE_NS
        self._closed_until_ns = now_ns + self._pause_ns
        self._sizes.clear()
