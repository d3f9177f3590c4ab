"""The command line: which networks, where they are kept, and where the table goes."""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.arguments import names
from benchmarks.jobs.lines import ShapeLine, misses, table
from benchmarks.jobs.tool_runs import run_tool
from control.jobs.specs.convert import ConvertSpec
from control.jobs.specs.quantise import QuantiseSpec
from jobs.tools.measure.machine import cpu_flags, cpu_name, saturates

NETWORKS = {
    "resnet": "TorchScript",
    "mobilenet": "torch.export",
    "bert": "Hugging Face",
    "boosting": "XGBoost",
}
CONVOLUTIONAL = ("resnet", "mobilenet")
WITHOUT_LAYERS = ("boosting",)


def main(words: Sequence[str]) -> int:
    """Print the table; 1 where a result is refused or misses what is asked of it."""
    given = _parser().parse_args(words)
    folder: Path = given.cache.resolve() / "jobs"
    shutil.rmtree(folder / "runs", ignore_errors=True)
    try:
        lines = [_line(name, folder) for name in given.only]
    except RuntimeError as reason:
        print(reason, file=sys.stderr)
        return 1
    text = table(lines, cpu_name())
    print(text)
    if given.markdown:
        given.markdown.write_text(text)
    for line in lines:
        for warning in (*line.converted.warnings, *(line.quantised or line.converted).warnings):
            print(f"{line.name}: {warning}")
    found = misses(lines, CONVOLUTIONAL, saturates(cpu_flags()))
    print("\n".join(f"MISSED {one}" for one in found) or "everything that is asked is met")
    return 1 if found else 0


def _line(name: str, folder: Path) -> ShapeLine:
    from benchmarks.jobs.sources import write_source  # what it needs is an extra

    print(f"{name}: building", file=sys.stderr, flush=True)
    source, data = write_source(name, folder / "sources")
    print(f"{name}: converting", file=sys.stderr, flush=True)
    runs = folder / "runs"
    spec = ConvertSpec(model=name, version=1)
    converted = run_tool(runs / f"{name}-onnx", spec, source, str(data), threads=1)
    if name in WITHOUT_LAYERS or converted.verdict != "accepted":
        return ShapeLine(name, NETWORKS[name], converted, None)
    print(f"{name}: quantising", file=sys.stderr, flush=True)
    output = runs / f"{name}-onnx" / "output"
    shutil.copyfile(output / "config.pbtxt", output / "1" / "config.pbtxt")
    quantised = run_tool(
        runs / f"{name}-int8", QuantiseSpec(model=name, version=2), output / "1", str(data),
        threads=1,
    )  # fmt: skip
    return ShapeLine(name, NETWORKS[name], converted, quantised)


def _parser() -> argparse.ArgumentParser:
    import benchmarks.jobs

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks jobs", description=benchmarks.jobs.__doc__
    )
    add = parser.add_argument
    add("--only", type=names(NETWORKS), default=list(NETWORKS), metavar="NAME,…",
        help=f"networks: {', '.join(NETWORKS)} (default: all)")  # fmt: skip
    add("--markdown", type=Path, metavar="FILE", help="write the table, too")
    add("--cache", type=Path, default=Path(".cache"), metavar="DIR",
        help="where networks and results are kept (.cache)")  # fmt: skip
    return parser
