"""Give every file of a corpus to its target once: `python -m benchmarks.fuzz.replay TARGET FOLDER`.

Raises what the target raises; prints how many lines of the target's modules were reached. With a
second folder, the inputs are copied to it that reach a line which neither the target's seeds nor a
smaller input does.
"""

import importlib
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.fuzz.lines import Lines
from benchmarks.fuzz.target import Run, Target


def replay(target: Target, files: Sequence[Path]) -> tuple[int, int]:
    """Lines reached, and all of the target's."""
    with target.open() as run, Lines(target.packages) as lines:
        for file in files:
            _give(run, file)
        return lines.figures()


def needed(target: Target, files: Sequence[Path]) -> list[Path]:
    """The files that reach a line which neither the seeds nor a smaller file does."""
    kept: list[Path] = []
    with target.open() as run, Lines(target.packages) as lines:
        for seed in target.seeds():
            run(seed)
        most, _ = lines.figures()
        for file in sorted(files, key=lambda one: (one.stat().st_size, one.name)):
            _give(run, file)
            reached, _ = lines.figures()
            if reached > most:
                kept.append(file)
            most = reached
    return kept


def _give(run: Run, file: Path) -> None:
    try:
        run(file.read_bytes())
    except Exception as error:
        error.add_note(f"input: {file}")
        raise


def load(name: str) -> Target:
    target: Target = importlib.import_module(f"benchmarks.fuzz.targets.{name}").TARGET
    return target


def main(name: str, corpus: Path, small: Path | None = None) -> None:
    target, files = load(name), sorted(corpus.iterdir())
    if small is not None:
        for file in needed(target, files):
            shutil.copyfile(file, small / file.name)
        return
    reached, lines = replay(target, files)
    print(f"lines {reached} {lines}")


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:]))
