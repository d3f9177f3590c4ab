"""Perplexity of a small language model in 4 bits: `python -m benchmarks.jobs.language_bits`.

A decoder of LLaMA's shape, too small to be of use but trained on the stories that the example
tells, is quantised by each method through the tool itself, in a process of its own, calibrated on
stories that it has seen. Then the engine reads each checkpoint and computes the perplexity of
stories that nothing has seen. The original is quantised by the engine while it loads, too.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import torch

from backends.llm.load import LoadSettings, load
from backends.llm.ops.seam import Precision
from benchmarks.jobs.tool_runs import figure, run_tool
from benchmarks.llm_perplexity import BUDGET, perplexity
from control.jobs.report import Report
from control.jobs.specs.quantise_llm import QuantiseLlmSpec
from examples.stories.checkpoint import save
from examples.stories.network import Shape
from examples.stories.tokens import documents, train_tokenizer
from examples.stories.training import Recipe, train

METHODS = ("rtn", "awq", "gptq")
SEEN, UNSEEN = 1_000_003, 987_654_321
"""Seeds of documents: one of those that are trained on, and one that is not."""
DOCUMENTS = 400


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.jobs.language_bits", description=__doc__
    )
    parser.add_argument("--folder", type=Path, help="a checkpoint, rather than one trained here")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--engine-documents", type=int, default=50)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        source = given.folder or trained(place / "source", given)
        data = texts(place / "data")
        print("| weights | bits | tool's perplexity | engine's | more than float32 |")
        print("|---|---|---|---|---|")
        unseen = list(documents(UNSEEN, given.engine_documents))
        exact = engine_perplexity(source, "float32", unseen)
        row("as trained", 32, None, exact, exact)
        row("rounded by the engine", 4, None, engine_perplexity(source, "int4", unseen), exact)
        for bits in (4, 8):
            for method in METHODS:
                report, folder = quantised(place, source, data, method, bits, given.threads)
                tool = figure(report, "perplexity")[1]
                found = engine_perplexity(folder, f"int{bits}", unseen)  # type: ignore[arg-type]
                row(method, bits, tool, found, exact)


def row(name: str, bits: int, tool: float | None, engine: float, exact: float) -> None:
    """Print a line of the table."""
    said = "" if tool is None else f"{tool:.4f}"
    print(f"| {name} | {bits} | {said} | {engine:.4f} | {100 * (engine / exact - 1):.2f} % |")


def trained(folder: Path, given: argparse.Namespace) -> Path:
    """A checkpoint of a small decoder after some steps on the stories."""
    folder.mkdir()
    recipe = Recipe(steps=given.steps, rows=4, length=256, threads=given.threads)
    tokenizer = train_tokenizer(recipe.seed)
    shape = Shape(
        tokenizer.get_vocab_size(), hidden=given.hidden, width=-(-given.hidden * 8 // 96) * 32,
        layers=given.layers, heads=4, kv_heads=2,
    )  # fmt: skip
    made = train(tokenizer, recipe, shape, lambda line: print(line, file=sys.stderr))
    save(made.network, tokenizer, folder)
    (folder / "config.pbtxt").write_text('name: "stories"\nbackend: "llm"\n')
    size = sum(one.numel() for one in made.network.parameters())
    print(f"{size:,} parameters, {given.steps} steps, loss {made.loss:.3f} at the end\n")
    return folder


def texts(folder: Path) -> Path:
    """Calibration and held-out text, a document a line."""
    folder.mkdir()
    for name, seed in (("calibration.txt", SEEN), ("held_out.txt", UNSEEN + 1)):
        lines = (one.replace("\n", " ") for one in documents(seed, DOCUMENTS))
        (folder / name).write_text("\n".join(lines))
    return folder


def quantised(
    place: Path, source: Path, data: Path, method: str, bits: int, threads: int
) -> tuple[Report, Path]:
    """Run the tool in a process of its own: its report, and the folder of the result's files."""
    folder = place / f"{method}-{bits}"
    spec = QuantiseLlmSpec(
        model="stories", version=1, method=method, bits=bits, floor=1000.0,  # type: ignore[arg-type]
        calibration="calibration.txt", held_out="held_out.txt", length=256,
    )  # fmt: skip
    return run_tool(folder, spec, source, str(data), threads=threads), folder / "output" / "1"


def engine_perplexity(folder: Path, precision: Precision, unseen: list[str]) -> float:
    """As the engine computes it, activations in 8 bits included."""
    return perplexity(load(folder, LoadSettings(BUDGET, precision=precision)), unseen)


if __name__ == "__main__":
    main()
