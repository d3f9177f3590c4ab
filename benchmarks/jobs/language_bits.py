"""Perplexity of a small language model in fewer bits: `python -m benchmarks.jobs.language_bits`.

A decoder of LLaMA's shape, too small to be of use, is trained on the paragraphs of this project's
manual (or, by `--corpus stories`, on the stories that the example tells). Each method of the tool
quantises it, in a process of its own, calibrated with text that it was trained on. Perplexity is of
text that nothing has seen: as the tool computes it, and as the engine does that serves the result,
which also rounds the head and each token's numbers to 8 bits.
"""

import argparse
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Tokenizer

from backends.llm.load import LoadSettings, load
from backends.llm.ops.seam import Precision
from benchmarks.jobs.manual_text import paragraphs, train_network
from benchmarks.jobs.manual_text import train_tokenizer as manual_tokenizer
from benchmarks.jobs.tool_runs import figure, run_tool
from benchmarks.llm_perplexity import BUDGET, perplexity
from control.jobs.report import Report
from control.jobs.specs.quantise_llm import QuantiseLlmSpec
from examples.stories.checkpoint import save
from examples.stories.network import Shape
from examples.stories.tokens import documents, train_tokenizer
from examples.stories.training import Recipe

METHODS = ("rtn", "awq", "gptq")
SEEN, UNSEEN = 1_000_003, 987_654_321
"""Seeds of stories."""
DOCUMENTS = 400


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.jobs.language_bits", description=__doc__
    )
    parser.add_argument("--corpus", choices=["manual", "stories"], default="manual")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--hidden", type=int, default=192)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bits", type=int, nargs="+", default=[4, 8])
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        corpus = manual() if given.corpus == "manual" else stories()
        source = trained(place / "source", corpus, given)
        data = corpus.write(place / "data")
        print("| weights | bits | tool's perplexity | more | engine's perplexity | more |")
        print("|---|---|---|---|---|---|")
        unseen = corpus.held_out[:50]
        exact = engine_perplexity(source, "float32", unseen)
        rounded = engine_perplexity(source, "int4", unseen)
        row("rounded by the engine as it loads", 4, None, (exact, rounded))
        for bits in given.bits:
            for method in METHODS:
                report, folder = quantised(place, source, data, method, bits, given.threads)
                found = engine_perplexity(folder, f"int{bits}", unseen)  # type: ignore[arg-type]
                row(method, bits, figure(report, "perplexity"), (exact, found))


def row(
    name: str, bits: int, tool: tuple[float, float] | None, engine: tuple[float, float]
) -> None:
    """Print a line of the table: before and after, and how much more that is."""
    parts = ["" for _ in range(2)] if tool is None else _parts(tool)
    print(f"| {name} | {bits} | {' | '.join([*parts, *_parts(engine)])} |", flush=True)


def _parts(pair: tuple[float, float]) -> list[str]:
    before, after = pair
    return [f"{before:.4f} to {after:.4f}", f"{100 * (after / before - 1):+.3f} %"]


class Corpus(NamedTuple):
    """Texts that are trained on, a part of them to calibrate with, and texts held out."""

    tokenizer: Tokenizer
    trained: list[str]
    held_out: list[str]

    def write(self, folder: Path) -> Path:
        """Calibration and held-out text, a document a line."""
        folder.mkdir()
        (folder / "calibration.txt").write_text("\n".join(self.trained[:DOCUMENTS]))
        (folder / "held_out.txt").write_text("\n".join(self.held_out))
        return folder


def manual() -> Corpus:
    """Paragraphs of docs/."""
    learnt, unseen = paragraphs()
    return Corpus(manual_tokenizer(learnt), learnt, unseen)


def stories() -> Corpus:
    """Stories of the example, which is trained on others of the same kind."""
    seen = [one.replace("\n", " ") for one in documents(SEEN, 2000)]
    unseen = [one.replace("\n", " ") for one in documents(UNSEEN, DOCUMENTS)]
    return Corpus(train_tokenizer(1), seen, unseen)


def trained(folder: Path, corpus: Corpus, given: argparse.Namespace) -> Path:
    """A checkpoint of a small decoder after some steps."""
    folder.mkdir()
    recipe = Recipe(steps=given.steps, rows=4, length=256, threads=given.threads)
    shape = Shape(
        corpus.tokenizer.get_vocab_size(), hidden=given.hidden,
        width=-(-given.hidden * 8 // 96) * 32, layers=given.layers, heads=6, kv_heads=2,
    )  # fmt: skip
    network = train_network(corpus.tokenizer, corpus.trained, shape, recipe)
    save(network, corpus.tokenizer, folder)
    (folder / "config.pbtxt").write_text('name: "small"\nbackend: "llm"\n')
    size = sum(one.numel() for one in network.parameters())
    print(f"{size:,} parameters, {given.steps} steps of 1,024 tokens\n", flush=True)
    return folder


def quantised(
    place: Path, source: Path, data: Path, method: str, bits: int, threads: int
) -> tuple[Report, Path]:
    """Run the tool in a process of its own: its report, and the folder of the result's files."""
    folder = place / f"{method}-{bits}"
    spec = QuantiseLlmSpec(
        model="small", version=1, method=method, bits=bits, floor=1000.0,  # type: ignore[arg-type]
        calibration="calibration.txt", held_out="held_out.txt", length=256,
    )  # fmt: skip
    return run_tool(folder, spec, source, str(data), threads=threads), folder / "output" / "1"


def engine_perplexity(folder: Path, precision: Precision, unseen: list[str]) -> float:
    """As the engine computes it, activations in 8 bits included."""
    return perplexity(load(folder, LoadSettings(BUDGET, precision=precision)), unseen)


if __name__ == "__main__":
    main()
