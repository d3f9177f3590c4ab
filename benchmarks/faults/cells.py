"""The table's cells: which component is hit by what, while what goes on. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

MOMENTS = {
    "idle": "requests for every model, nothing else",
    "load": "a version whose start takes a second is being loaded",
    "push": "a git push is being checked and deployed",
    "stream": "a decoupled model and a language model are streaming",
    "change": "users are created over the control API, one after the other",
    "backup": "a backup is being taken",
    "start": "the server is starting",
    "stop": "the server was told to end (SIGTERM)",
}

RUNNING = ("idle", "load", "push", "stream", "change", "backup")
ALL = tuple(MOMENTS)


@dataclass(frozen=True, slots=True)
class Cell:
    """One fault. `recover_s`: longest promised until everything is served again; the fault's own
    length counts from its end."""

    component: str
    kind: str
    moment: str
    recover_s: float = 60.0

    @property
    def name(self) -> str:
        return f"{self.component}/{self.kind}/{self.moment}"


@dataclass(frozen=True, slots=True)
class Row:
    """Component and kind, and the moments at which they make a cell. `needs`: what the server is
    started with, see `server.Setup`."""

    component: str
    kind: str
    meaning: str
    moments: tuple[str, ...]
    needs: str = ""


TABLE = (
    Row("gateway", "kill", "SIGKILL; started again as a supervisor would", ALL),
    Row("gateway", "stop", "SIGSTOP for three seconds", ALL),
    Row("gateway", "no descriptors", "no further file descriptor for three seconds", RUNNING),
    Row("control process", "kill", "SIGKILL", ALL),
    Row("control process", "stop", "SIGSTOP, for good", ALL),
    Row("control process", "no descriptors", "no further descriptor for 3 s", RUNNING),
    Row("worker", "kill", "SIGKILL of a python model's process", (*RUNNING, "stop")),
    Row("worker", "stop", "SIGSTOP of a python model's process, for good", (*RUNNING, "stop")),
    Row("worker", "hang", "execute of a python model never returns", (*RUNNING, "stop")),
    Row("worker", "no memory", "no further memory for a python model's process", RUNNING),
    Row("caller", "kill", "SIGKILL of the process of a script that calls another model", RUNNING),
    Row("caller", "stop", "SIGSTOP of the same, for good", RUNNING),
    Row("sequences", "kill", "SIGKILL of the process that has the states of sequences", RUNNING),
    Row("sequences", "stop", "SIGSTOP of the same, for good", RUNNING),
    Row("engine", "kill", "SIGKILL of a language model's process", (*RUNNING, "stop")),
    Row("engine", "stop", "SIGSTOP of a language model's process, for good", (*RUNNING, "stop")),
    Row("checker", "kill", "SIGKILL of the process that checks a version", ("load", "push")),
    Row("checker", "stop", "SIGSTOP of the process that checks a version", ("load", "push")),
    Row("git", "kill", "SIGKILL of git receive-pack", ("push",)),
    Row("git", "stop", "SIGSTOP of git receive-pack for three seconds", ("push",)),
    Row("client", "kill", "SIGKILL of a client with 16 requests under way", (*RUNNING, "stop")),
    Row("client", "stop", "a client that takes nothing of its answers", (*RUNNING, "stop")),
    Row("database", "deleted", "the SQLite file is removed", RUNNING),
    Row("database", "corrupted", "pages of the SQLite file are overwritten", RUNNING),
    Row("database", "locked", "another process holds a write lock for 3 s", RUNNING),
    Row("disk", "full", "the state folder's disk has no byte left for 3 s", RUNNING, "tmpfs"),
    Row("disk", "slow", "every fsync takes half a second for 3 s", RUNNING, "preload"),
    Row("network", "cut", "the link between client and server is down for 3 s", RUNNING, "netns"),
    Row("clock", "an hour ahead", "the wall clock jumps", RUNNING, "faketime"),
    Row("clock", "an hour back", "the wall clock jumps", RUNNING, "faketime"),
)


HIT = {
    "worker": {"double", "chain", "script"},
    "caller": {"script"},
    "sequences": {"sum"},
    "engine": {"tiny"},
}
"""The models that a fault of a model's process may cost answers; no other model notices it."""


def cells() -> Iterator[Cell]:
    for row in TABLE:
        for moment in row.moments:
            yield Cell(row.component, row.kind, moment)


def row_of(cell: Cell) -> Row:
    return next(one for one in TABLE if (one.component, one.kind) == (cell.component, cell.kind))
