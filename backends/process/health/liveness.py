"""Decides whether a worker hangs: seconds without a heartbeat, seconds without progress. Pure.

Time is counted in looks, and a look counts at most its interval: when the server itself was
stopped for an hour, no worker is blamed for it.
"""

from dataclasses import dataclass

from backends.limits import ExecutionLimit

MISSED_HEARTBEATS = 3
_LOOKS_A_LIMIT = 10
_SHORTEST_LOOK_SECS = 0.05
_BUSY_HEARTBEAT_SECS = 120.0
"""User code in C may hold the GIL for a minute, and then no thread of its process answers."""


@dataclass(slots=True)
class Activity:
    """What a worker is doing, written by whoever talks with it.

    `loading`: not ready yet. `executing`: a batch is inside, the last of so many `executions`.
    `streams`: open streams. `progress`
    changes with every response, and with every other sign of progress the worker tells of.
    `calls`: calls of its model to other models that have no answer yet; those have limits too.
    """

    loading: bool = True
    executing: bool = False
    executions: int = 0
    streams: int = 0
    progress: int = 0
    calls: int = 0

    @property
    def busy(self) -> bool:
        return self.executing or self.streams > 0


@dataclass(slots=True)
class Liveness:
    """One worker's. `heartbeat_secs`: how long an idle one, or one stopped by a signal, may be
    silent; a busy one may be for half its execution limit, and at least two minutes."""

    limit: ExecutionLimit
    heartbeat_secs: float
    _silent_secs: float = 0.0
    _stuck_secs: float = 0.0
    _progress: int = -1

    @property
    def interval_secs(self) -> float:
        """How often to look."""
        interval = self.heartbeat_secs / MISSED_HEARTBEATS
        if self.limit.secs:
            interval = min(interval, self.limit.secs / _LOOKS_A_LIMIT)
        return max(interval, _SHORTEST_LOOK_SECS)

    def answered(self) -> None:
        """It has answered a heartbeat."""
        self._silent_secs = 0.0

    @property
    def silent(self) -> bool:
        """Whether it is so silent that it matters whether a signal has stopped it."""
        return self._silent_secs > self.heartbeat_secs

    def look(
        self, since_secs: float, activity: Activity, *, stopped: bool, reader_behind: bool
    ) -> str:
        """How its end is to be told if it must end now, otherwise "".

        `since_secs` since the last look. `stopped`: by a signal (SIGSTOP). `reader_behind`: a
        client does not read its stream, or another model has not answered, and the model may be
        waiting for it.
        """
        step_secs = min(since_secs, self.interval_secs)
        self._silent_secs += step_secs
        if reader_behind or not activity.busy or activity.progress != self._progress:
            self._stuck_secs = 0.0
        else:
            self._stuck_secs += step_secs
        self._progress = activity.progress
        return self._silence(activity, stopped) or self._stall()

    def _silence(self, activity: Activity, stopped: bool) -> str:
        secs, most = self._silent_secs, self.heartbeat_secs
        if stopped and secs > most:
            return f"was stopped by a signal, answered no heartbeat for {most:g} s and was killed"
        if activity.loading:
            return ""  # imports may hold the GIL; the load has a limit of its own
        if not activity.busy:
            if secs > most:
                return f"was idle, answered no heartbeat for {most:g} s and was killed"
            return ""
        most = max(_BUSY_HEARTBEAT_SECS, self.heartbeat_secs, self.limit.secs / 2)
        if self.limit.secs and secs > most:
            return f"was busy, answered no heartbeat for {most:g} s and was killed"
        return ""

    def _stall(self) -> str:
        if not 0 < self.limit.secs < self._stuck_secs:
            return ""
        return (
            f"executed for more than {self.limit.secs:g} s without progress and was killed "
            f"(the limit is {self.limit}; 0 for none)"
        )
