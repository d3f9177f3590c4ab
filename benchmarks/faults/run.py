"""One cell: the load runs, something is going on, the fault comes and goes, all is well again."""

import http.client
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from benchmarks.faults.cells import HIT, Cell
from benchmarks.faults.changes import Changes
from benchmarks.faults.injectors import LASTS_S, NotInjected, Undo, inject
from benchmarks.faults.load import Load
from benchmarks.faults.moments import Moments
from benchmarks.faults.outcome import HANG_S, Outcome
from benchmarks.faults.server import EXIT_S, NotStarted, Server

WARM_S = 0.7
"""The load before the fault."""

WELL_S = 90.0
_EXIT_SLACK_S = 6.0


def run(server: Server, cell: Cell) -> Outcome:
    """Raises NotStarted when the server cannot be brought back for the next cell."""
    return _Run(server, cell).whole()


class _Run:
    def __init__(self, server: Server, cell: Cell) -> None:
        self._server = server
        self._cell = cell
        self._load = Load(server)
        self._changes = Changes(server, self._load.tally)
        self._moments = Moments(server, self._load.tally, self._changes)
        self._problems: list[str] = []
        self._lost: list[str] = []
        self._observed = ""
        self._recovered_s: float | None = None

    def whole(self) -> Outcome:
        for _ in range(3):
            self._changes.one()
        if self._cell.moment == "stop":
            self._while_ending()
        elif self._cell.moment == "start":
            self._while_starting()
        else:
            self._while_serving()
        counts = self._load.tally.counts
        return Outcome(
            self._cell.name,
            right=counts["right"],
            refused=counts["refused"],
            broken=counts["broken"],
            wrong=counts["wrong"],
            hung=counts["hung"],
            lost=len(self._lost),
            recovered_s=self._recovered_s,
            observed=self._observed,
            problem=", ".join(self._problems),
            disturbed=self._disturbed(),
        )

    def _disturbed(self) -> int:
        """Answers of other models than those hit, which were not right."""
        hit = HIT.get(self._cell.component)
        if hit is None or self._cell.moment in ("start", "stop"):
            return 0
        counts = self._load.tally.of_model.items()
        return sum(n for (model, what), n in counts if model not in hit and what != "right")

    def _while_serving(self) -> None:
        is_database = self._cell.component == "database" and self._cell.kind != "locked"
        copy = _copied(self._server) if is_database else None
        self._load.start()
        time.sleep(WARM_S)
        end = self._moments.begin(self._cell.moment)
        struck = time.monotonic()
        over = self._strike()
        if copy is not None:
            self._restore(copy, struck, end)
        else:
            self._recover(over)
            end()
            self._load.stop()
            self._look_for_waiting()
        self._count_lost()

    def _look_for_waiting(self) -> None:
        """Everybody has their answer: no request may be left inside."""
        until = time.monotonic() + HANG_S
        while (waiting := self._server.waiting()) and time.monotonic() < until:
            time.sleep(0.1)
        if waiting:
            self._problems.append(f"{waiting} requests wait that nobody has sent")

    def _strike(self) -> float:
        """The fault, for as long as it lasts; time.monotonic() of its end."""
        try:
            self._observed, undo = inject(self._server, self._cell)
        except NotInjected as reason:
            self._problems.append(str(reason))
            return time.monotonic()
        time.sleep(LASTS_S)
        undo()
        return time.monotonic()

    def _recover(self, since: float) -> None:
        """Wait until all is well; a gateway that is gone is started again, as supervisors do."""
        if self._server.has_ended():
            self._server.end()
            self._server.start()
        until = since + WELL_S
        while time.monotonic() < until:
            if self._server.is_well() and self._changes.one() and self._answers():
                self._recovered_s = time.monotonic() - since
                return
            time.sleep(0.1)
        self._problems.append(f"log: {self._server.last_words()[-300:]!r}")

    def _answers(self) -> bool:
        """Whether each model answers rightly now."""
        return self._load.each_is_right()

    def _while_ending(self) -> None:
        """SIGTERM, and the fault within; it must end in time, and nothing may outlive it."""
        self._load.start()
        time.sleep(WARM_S)
        began = time.monotonic()
        undo = self._at_the_end()
        status = self._server.wait(EXIT_S + _EXIT_SLACK_S)
        undo()
        if status is None:
            status = self._server.wait(LASTS_S + EXIT_S)
        self._load.stop()
        if status is None:
            self._problems.append(f"still there {time.monotonic() - began:.0f} s after SIGTERM")
        if left := self._server.end():
            self._problems.append(f"{len(left)} processes outlived it")
        self._again()

    def _at_the_end(self) -> Undo:
        """SIGTERM and the fault, which a client suffers before: nobody is let in afterwards."""
        if self._cell.component != "client":
            self._server.terminate()
        try:
            self._observed, undo = inject(self._server, self._cell)
        except (NotInjected, ProcessLookupError) as reason:
            self._problems.append(f"it had ended already: {reason}")
            undo = lambda: None  # noqa: E731
        if self._cell.component == "client":
            self._server.terminate()
        return undo

    def _while_starting(self) -> None:
        """The fault comes while a fresh process starts over the same state."""
        self._server.terminate()
        self._server.wait(2 * EXIT_S + _EXIT_SLACK_S)
        self._server.end()
        self._server.start()
        self._observed = "not there in time"
        try:
            self._observed, undo = inject(self._server, self._cell)
        except NotInjected as reason:
            self._problems.append(str(reason))
            undo = lambda: None  # noqa: E731
        time.sleep(LASTS_S if self._cell.kind == "stop" else 0.2)
        undo()
        over = time.monotonic()
        self._recover(over)
        self._load.start()
        time.sleep(WARM_S)
        self._load.stop()
        self._count_lost()

    def _restore(self, copy: Path, struck: float, end: object) -> None:
        """The database is gone: inference goes on, nothing more is acknowledged, an operator
        stops the server, puts the copy back and starts it."""
        since = time.monotonic()
        until = since + 20.0
        while self._changes.one() and time.monotonic() < until:
            time.sleep(0.1)  # one that is still acknowledged counts as lost below
        if not self._answers():
            self._problems.append("inference noticed that the database was gone")
        end()  # type: ignore[operator]
        self._load.stop()
        late = [name for name, at in self._changes.acknowledged.items() if at > struck + 0.5]
        self._lost += late
        for name in [one for one, at in self._changes.acknowledged.items() if at >= struck - 0.5]:
            del self._changes.acknowledged[name]
        self._moments.pushed.clear()
        self._server.terminate()
        self._server.wait(2 * EXIT_S + _EXIT_SLACK_S)
        self._server.end()
        for each in self._server.state.glob("modelyard.db*"):
            each.unlink()
        copy.rename(self._server.state / "modelyard.db")
        self._again()

    def _again(self) -> None:
        since = time.monotonic()
        self._server.start()
        self._recover(since)
        self._count_lost()

    def _count_lost(self) -> None:
        try:
            self._lost += self._changes.lost()
            self._lost += self._moments.lost_pushes()
        except (OSError, http.client.HTTPException) as error:
            self._problems.append(f"what is there cannot be listed: {error}")


def settle(server: Server) -> None:
    """Ready for the next cell. Raises NotStarted."""
    server.hang.unlink(missing_ok=True)
    if server.has_ended():
        server.end()
        server.start()
    try:
        server.wait_until_ready(HANG_S)
    except NotStarted:
        server.end()
        server.start()
        server.wait_until_ready()


def _copied(server: Server) -> Path:
    """The database as it is now, by SQLite's own backup."""
    copy = server.folder / "copy.db"
    copy.unlink(missing_ok=True)
    with (
        closing(sqlite3.connect(server.state / "modelyard.db")) as source,
        closing(sqlite3.connect(copy)) as target,
    ):
        source.backup(target)
    return copy
