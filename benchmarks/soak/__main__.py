"""`python -m benchmarks.soak`: an hour of mixed traffic; goes on where it stopped."""

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.soak.plot import svg
from benchmarks.soak.report import text
from benchmarks.soak.rows import Run, runs_of
from benchmarks.soak.run import Soak
from benchmarks.soak.verdict import problems


def main(words: Sequence[str] | None = None) -> int:
    """1 when something is against the promise."""
    arguments = _parser().parse_args(words)
    state: Path = arguments.state
    state.parent.mkdir(parents=True, exist_ok=True)
    if arguments.fresh:
        state.unlink(missing_ok=True)
    done = sum(len(run.minutes) for run in _read(state))
    if not arguments.report and done < arguments.minutes:
        _run(state, arguments.minutes - done, done + 1, arguments.rate)
    runs = _read(state)
    said = text(runs)
    print(said)
    if arguments.markdown:
        arguments.markdown.write_text(said)
    if arguments.plot:
        arguments.plot.write_text(svg(runs))
    return 1 if not runs or any(problems(run) for run in runs) else 0


def _run(state: Path, minutes: float, first: int, rate: float) -> None:
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    try:
        with state.open("a") as file:

            def write(line: str) -> None:
                file.write(line + "\n")
                file.flush()

            try:
                Soak(folder, write, rate).run(minutes, first)
            finally:
                log = folder / "log"
                if log.exists():
                    shutil.copy(log, state.with_suffix(".log"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read(state: Path) -> list[Run]:
    if not state.exists():
        return []
    with state.open() as lines:
        return runs_of(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="of traffic in all")
    parser.add_argument("--rate", type=float, default=20.0, help="requests a second")
    parser.add_argument("--state", type=Path, default=Path(".cache/soak.jsonl"))
    parser.add_argument("--fresh", action="store_true", help="forget what was measured before")
    parser.add_argument("--report", action="store_true", help="only draw what was measured")
    parser.add_argument("--markdown", type=Path, help="also write the report here")
    parser.add_argument("--plot", type=Path, help="also draw the plot here, as SVG")
    return parser


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # ignored where a shell started us with &
    sys.exit(main())
