"""A campaign's runs and their figures, kept in a folder so that it goes on where it stopped."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from benchmarks.fuzz import growth
from benchmarks.fuzz.replay import load

CONTROL_API = "control_api"
TARGETS = ("config", "frames", "rest", "http2", "grpc", "git", "lfs", CONTROL_API)
CORPORA = Path(__file__).resolve().parents[2] / "tests" / "corpora"
"""Inputs kept from earlier campaigns, a folder for each target."""

HANG_S, MOST_RSS_MB = 60, 2500
RUN_S = 7200
_STAT = re.compile(r"stat::(\w+):\s+(\d+)")


@dataclass(frozen=True, slots=True)
class Ran:
    """One process: inputs it took, its peak in MB, and how it ended ("done", or what was wrong)."""

    inputs: int
    rate: int
    peak_mb: int
    ended: str


@dataclass(frozen=True, slots=True)
class Row:
    """One target of the table. `grown_mb`: the largest growth within a run's second half."""

    target: str
    inputs: int
    rate: int
    corpus: int
    reached: int
    lines: int
    grown_mb: float
    wrong: tuple[str, ...]


class Campaign:
    """One target's folder: `corpus/`, `artifacts/` (inputs that broke something), `runs.json`."""

    def __init__(self, state: Path, target: str) -> None:
        self.target = target
        self._folder = state / target
        self._corpus = self._folder / "corpus"
        self._artifacts = self._folder / "artifacts"
        for one in (self._corpus, self._artifacts):
            one.mkdir(parents=True, exist_ok=True)

    def run(self, inputs: int, each: int) -> Iterator[Ran]:
        """Runs of `each` inputs until `inputs` were taken in all, or one ended badly."""
        self._plant()
        while (left := inputs - sum(one.inputs for one in self.runs())) > 0:
            ran = self._once(min(each, left), len(self.runs()))
            self._keep(ran)
            yield ran
            if ran.ended != "done":
                return

    def runs(self) -> list[Ran]:
        file = self._folder / "runs.json"
        return [Ran(**row) for row in json.loads(file.read_text())] if file.exists() else []

    def row(self) -> Row:
        """The figures so far; replays the corpus for the lines."""
        runs = self.runs()
        reached, lines = self._lines()
        sizes = growth.read(self._folder / "growth")
        return Row(
            self.target,
            sum(one.inputs for one in runs),
            max((one.rate for one in runs), default=0),
            len(list(self._corpus.iterdir())),
            reached,
            lines,
            max(map(growth.grown, sizes), default=0) / 2**20,
            tuple(one.ended for one in runs if one.ended != "done"),
        )

    def minimised(self, folder: Path) -> int:
        """Copy to `folder` inputs that reach together what the corpus does; how many lie there.

        Raises RuntimeError where an input breaks something.
        """
        folder.mkdir(parents=True, exist_ok=True)
        words = ["benchmarks.fuzz.replay", self.target, str(self._corpus), str(folder)]
        status, text = self._call(words)
        if status != 0:
            raise RuntimeError(f"no corpus of {self.target} was kept: {text[-1500:]}")
        return len(list(folder.iterdir()))

    def _plant(self) -> None:
        if self.target == CONTROL_API:
            return
        kept = [file.read_bytes() for file in (CORPORA / self.target).glob("*")]
        for one in (*load(self.target).seeds(), *kept):
            (self._corpus / sha256(one).hexdigest()[:40]).write_bytes(one)

    def _once(self, inputs: int, number: int) -> Ran:
        if self.target == CONTROL_API:
            words = ["benchmarks.fuzz.control_api", str(self._folder), str(inputs), str(number)]
        else:
            words = [
                "benchmarks.fuzz.one", self.target, str(self._folder), str(self._corpus),
                f"-artifact_prefix={self._artifacts}/", f"-runs={inputs}", f"-timeout={HANG_S}",
                f"-rss_limit_mb={MOST_RSS_MB}", "-print_final_stats=1",
            ]  # fmt: skip
        status, text = self._call(words)
        stats = {name: int(value) for name, value in _STAT.findall(text)}
        ended = "done" if status == 0 else f"status {status}: {_reason(text)}"
        return Ran(
            stats.get("number_of_executed_units", 0),
            stats.get("average_exec_per_sec", 0),
            stats.get("peak_rss_mb", 0),
            ended,
        )

    def _lines(self) -> tuple[int, int]:
        if self.target == CONTROL_API:
            _, text = self._call(
                ["benchmarks.fuzz.control_api", str(self._folder), "1000", "0", "--cover"]
            )
        else:
            _, text = self._call(["benchmarks.fuzz.replay", self.target, str(self._corpus)])
        found = re.search(r"^lines (\d+) (\d+)$", text, re.MULTILINE)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    def _call(self, words: list[str]) -> tuple[int, str]:
        """Status and the last of the output; a run that does not end is ended."""
        log = self._folder / "log"
        with log.open("wb") as out:
            try:
                done = subprocess.run(
                    [sys.executable, "-m", *words],
                    stdout=out,
                    stderr=out,
                    timeout=RUN_S,
                    check=False,
                )
                status = done.returncode
            except subprocess.TimeoutExpired:
                status = 124
        return status, log.read_bytes()[-20_000:].decode(errors="replace")

    def _keep(self, ran: Ran) -> None:
        rows = [asdict(one) for one in (*self.runs(), ran)]
        fresh = self._folder / "runs.new"
        fresh.write_text(json.dumps(rows, indent=1))
        fresh.replace(self._folder / "runs.json")


def _reason(text: str) -> str:
    """What the target raised, where the output says it; else its end."""
    _, found, raised = text.rpartition("=== Uncaught Python exception: ===")
    return raised[:3000] if found else text[-1500:]
