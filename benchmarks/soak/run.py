"""One run of a soak: the server, its traffic, its changes, and the rows they give."""

import http.client
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.faults.server import Server
from benchmarks.faults.surroundings import Surroundings
from benchmarks.soak import models, weigh
from benchmarks.soak.changes import Changes
from benchmarks.soak.language import learn
from benchmarks.soak.load import SLOW_S, Load
from benchmarks.soak.rows import line_of

SAMPLE_S = 10.0
PULSE_S = 0.05
CONTEXT_S = 30.0
EXIT_S = 30
LIMITS = (f"--exit-timeout-secs={EXIT_S}", "--allow-client-shm=true")


class Soak:
    """Writes a row for whatever happens to `file`, from the start of the server to its end."""

    def __init__(self, folder: Path, write: Callable[[str], None], rate: float) -> None:
        self._write_line = write
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._ending = threading.Event()
        self._pulses: deque[tuple[float, float, float]] = deque(maxlen=4096)
        self._last_cpu: dict[int, float] = {}
        self._busy = 0.0
        self._peeked: set[tuple[str, float]] = set()
        self._server = Server(folder, Surroundings("", folder / "state"), LIMITS)
        models.write(self._server.repository)
        self._rate = rate

    def run(self, minutes: float, first: int) -> None:
        """Raises NotStarted, OSError; whatever comes, the server's processes are gone."""
        self._write("start", {"time": time.strftime("%Y-%m-%dT%H:%M:%S"), "rate": self._rate,
                              "cores": os.cpu_count()})  # fmt: skip
        server = self._server
        server.start()
        try:
            server.wait_until_ready()
            rest, wire = (f"{server.host}:{port}" for port in server.ports[:2])
            self._changes = Changes(server, self._write, self._began, 240 / max(self._rate, 1.0))
            self._changes.prepare()
            self._load = Load(rest, wire, learn(rest), self._notice, self._rate)
            self._carry_on(minutes, first)
        finally:
            left = server.end()
            if left:
                failed = f"processes outlived the server: {left}"
                self._write("event", {"at": self._at(), "kind": "end", "failed": failed})

    def _carry_on(self, minutes: float, first: int) -> None:
        watchers = [
            threading.Thread(target=self._repeat, args=(SAMPLE_S, self._sample), name="samples"),
            threading.Thread(target=self._repeat, args=(PULSE_S, self._pulse), name="pulse"),
            threading.Thread(target=self._repeat, args=(1.0, self._watch), name="watch"),
        ]
        for one in watchers:
            one.start()
        self._load.start()
        self._changes.start()
        until, number = time.monotonic() + 60 * minutes, first
        try:
            while (left := until - time.monotonic()) > 0 and not self._server.has_ended():
                time.sleep(min(60.0, left))
                if left > 60:
                    self._minute(number)
                    number += 1
        finally:
            died = self._server.has_ended()
            stuck = self._load.stop()
            self._changes.stop()
            self._ending.set()
            for one in watchers:
                one.join(60)
            self._minute(number)
            self._end(died, stuck)

    def _end(self, died: bool, stuck: list[str]) -> None:
        """SIGTERM; it must end by itself within what it promises."""
        began = time.monotonic()
        self._server.terminate()
        status = self._server.wait(EXIT_S + 30)
        problem = ""
        if died:
            problem = f"the server ended by itself: {self._server.last_words()}"
        elif status != 0:
            problem = f"the server's exit status is {status}"
        elif stuck:
            problem = f"requests never came back: {', '.join(stuck)}"
        took = round(time.monotonic() - began, 1)
        self._write("end", {"at": self._at(), "status": status, "took": took, "problem": problem})

    def _minute(self, number: int) -> None:
        since = time.monotonic() - 60
        pulses = [one for one in list(self._pulses) if one[0] >= since]
        busy, self._busy = self._busy, 0.0
        row = self._load.ledger.taken(
            number, self._at(),
            late=round(max((late for _, late, _ in pulses), default=0.0), 3),
            probe=round(max((probe for _, _, probe in pulses), default=0.0), 3),
            busy=round(busy, 2), own_cpu=round(time.process_time(), 2),
        )  # fmt: skip
        self._write("minute", row)

    def _sample(self) -> None:
        found = weigh.sample(self._server, self._at())
        for one in found.processes:
            self._busy += max(0.0, one.cpu - self._last_cpu.get(one.pid, one.cpu))
        self._last_cpu = {one.pid: one.cpu for one in found.processes}
        self._write("sample", found)

    def _pulse(self) -> None:
        """How late this process is woken, and every second how long a health check takes."""
        began = time.monotonic()
        time.sleep(PULSE_S)
        late = time.monotonic() - began - PULSE_S
        probe = 0.0
        if int(began) != int(self._pulses[-1][0] if self._pulses else 0):
            asked = time.monotonic()
            try:
                self._server.get("/v2/health/live", timeout=60)
            except (OSError, http.client.HTTPException) as error:
                self._write("wrong", {"at": self._at(), "kind": "health", "said": repr(error)})
            probe = time.monotonic() - asked
        self._pulses.append((began, late, probe))

    def _watch(self) -> None:
        """A look at the server while a request is slow; once for each."""
        now = time.monotonic()
        for who, (kind, since) in list(self._load.under_way.items()):
            if now - since > SLOW_S and kind != "slow reader" and (who, since) not in self._peeked:
                self._peeked.add((who, since))
                self._notice("slow", {"kind": kind, "still": round(now - since, 1),
                                      "threads": weigh.states(self._server)})  # fmt: skip

    def _notice(self, what: str, row: Mapping[str, Any]) -> None:
        """A request that was slow or bad, with what else was going on."""
        now = time.monotonic()
        pulses = [one for one in list(self._pulses) if one[0] >= now - CONTEXT_S]
        context = {
            "at": self._at(),
            "events": self._changes.since(now - CONTEXT_S),
            "others": [f"{kind} {now - at:.1f} s" for kind, at in self._load.under_way.values()],
            "late": round(max((late for _, late, _ in pulses), default=0.0), 3),
            "probe": round(max((probe for _, _, probe in pulses), default=0.0), 3),
            "machine": weigh.pressure(),
        }
        self._write(what, {**row, **context})

    def _repeat(self, pause: float, do: Callable[[], None]) -> None:
        while not self._ending.wait(pause):
            do()

    def _at(self) -> float:
        return round(time.monotonic() - self._began, 1)

    def _write(self, kind: str, row: Any) -> None:
        with self._lock:
            self._write_line(line_of(kind, row))
