"""The fuzzing process: `python -m benchmarks.fuzz.one TARGET FOLDER [libFuzzer's flags]`.

A process of its own, since libFuzzer ends its process when it is done.
"""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import atheris

from benchmarks.fuzz.growth import Growth
from benchmarks.fuzz.mutate import mutator
from benchmarks.fuzz.target import Run, Target

INSTRUMENTED = ["server", "repository", "backends", "schedulers", "control"]


def main(name: str, folder: Path, flags: list[str]) -> None:
    """Never returns."""
    with atheris.instrument_imports(include=INSTRUMENTED):
        target: Target = importlib.import_module(f"benchmarks.fuzz.targets.{name}").TARGET
        opened = target.open()
        run = opened.__enter__()
    words = [sys.argv[0], f"-max_len={target.max_bytes}", *flags]
    more = {} if target.split is None else {"custom_mutator": mutator(target, _of_bytes)}
    atheris.Setup(words, _measured(run, Growth(folder / "growth")), **more)
    atheris.Fuzz()


def _of_bytes(data: bytes, longest: int) -> bytes:
    mutated: bytes = atheris.Mutate(data, longest)  # looked up late: Fuzz() puts it there
    return mutated


def _measured(run: Run, growth: Growth) -> Callable[[bytes], None]:
    def one(data: bytes) -> None:
        run(data)
        growth.one()

    return one


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
