"""`./dev bench llm`: this server's language models against other engines, on one random model.

The same checkpoint and workload for all, interleaved rounds, medians. This server is asked over
HTTP, with sampling and streaming; the others run in processes of their own and are stepped
directly, which spares them the wire.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks import llm_model, llm_ours, llm_programs
from benchmarks.arguments import names
from benchmarks.llm_figures import Figures, figures, of_peer
from benchmarks.llm_scenarios import Line, Scene, overload, prefixes, stalls
from benchmarks.llm_workloads import SAMPLINGS, Ask, at_once, renewed
from benchmarks.peers.seam import Peer, PeerUnavailable
from benchmarks.process import PeerFailed

OTHERS = ("transformers 1", "transformers 8", "transformers continuous", "vllm", "openvino")
SCENES = {"prefixes": prefixes, "stalls": stalls, "overload": overload}
Contest = Callable[[Sequence[Ask]], Figures]


def main(words: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(words)
    size = "100m" if arguments.quick else "500m"
    folder = arguments.cache / f"llm-{size}"
    llm_model.ensure(size, folder)
    vocabulary = llm_model.SIZES[size]["vocab_size"]
    requests = arguments.requests or (8 if arguments.quick else 32)
    asks = at_once(requests, vocabulary, sampling=arguments.sampling)
    notes: list[str] = []
    with ExitStack() as running:
        ours, contests = _begin(running, folder, arguments, notes)
        table = compare(contests, asks, arguments.rounds or (1 if arguments.quick else 3))
        scene = Scene(ours, arguments.model, vocabulary, arguments.quick)
        lines = [line for name in arguments.scenes for line in SCENES[name](scene)]
    what = f"{size}, {requests} requests, {arguments.threads} threads, {arguments.sampling}"
    text = report(table, lines, notes, what)
    print(text)
    if arguments.markdown:
        arguments.markdown.write_text(text)
    if arguments.json:
        rows = {name: one._asdict() for name, one in table.items()}
        found = {"rows": rows, "lines": [line._asdict() for line in lines], "notes": notes}
        arguments.json.write_text(json.dumps(found, indent=1))
    return 0


def _begin(
    running: ExitStack, folder: Path, arguments: argparse.Namespace, notes: list[str]
) -> tuple[Peer, dict[str, Contest]]:
    """Start everybody; who cannot be is noted."""
    plain, cache, threads = folder / llm_model.PLAIN, arguments.cache, arguments.threads
    bounded = [llm_ours.BOUNDED] if "overload" in arguments.scenes else []
    variants = [*arguments.variants, *bounded]
    ours = running.enter_context(llm_ours.started(plain, cache, variants, threads))
    contests = {f"modelyard {name}": _asked(ours, name) for name in arguments.variants}
    for name in arguments.others:
        try:
            python, words = _program(name, folder, cache, threads)
            log = cache / "logs" / f"llm-{name.replace(' ', '-')}.log"
            program = llm_programs.started(name, python, words, log)
            contests[name] = _stepped(running.enter_context(program))
        except (PeerUnavailable, PeerFailed) as reason:
            notes.append(f"{name}: {reason}")
            print(f"without {name}: {reason}", file=sys.stderr)
    return ours, contests


def _program(name: str, folder: Path, cache: Path, threads: int) -> tuple[Path, list[str]]:
    """Which Python runs it, and with which words. Raises PeerUnavailable."""
    plain, kind, _, rest = folder / llm_model.PLAIN, *name.partition(" ")
    if kind == "transformers":
        words = ["transformers_program.py", str(plain), str(threads), rest]
        return Path(sys.executable), words
    if kind == "vllm":
        python = llm_programs.installed(llm_programs.VLLM, cache)
        model = folder / llm_model.W8A8 if rest == "W8A8" else plain
        return python, ["vllm_program.py", str(model), str(threads)]
    python = llm_programs.installed(llm_programs.OPENVINO, cache)
    model = llm_programs.exported(cache, plain, folder, "int8")
    return python, ["openvino_program.py", str(model), str(threads)]


def _asked(ours: Peer, model: str) -> Contest:
    def run(asks: Sequence[Ask]) -> Figures:
        before = ours.process.cpu_ns()
        heard, wall_s = llm_ours.ask(ours, model, asks)
        return figures(heard, wall_s, (ours.process.cpu_ns() - before) / 1e9)

    return run


def _stepped(program: llm_programs.Program) -> Contest:
    return lambda asks: of_peer(program.run(asks))


def compare(contests: dict[str, Contest], asks: Sequence[Ask], rounds: int) -> dict[str, Figures]:
    """Medians of interleaved rounds, after one short run of each that is not counted."""
    taken: dict[str, list[Figures]] = {name: [] for name in contests}
    for contest in contests.values():
        contest([replace(asks[0], tokens=4)])
    for number in range(rounds):
        for name, contest in contests.items():
            taken[name].append(contest(renewed(asks, number + 1)))
            found = taken[name][-1]
            said = f"{found.tokens_per_s:.1f} tok/s, {found.cpu_s:.1f} CPU-s"
            print(f"round {number + 1}/{rounds}: {name}: {said}", file=sys.stderr, flush=True)
    return {
        name: Figures(*(median(column) for column in zip(*runs, strict=True)))
        for name, runs in taken.items()
    }


def report(table: dict[str, Figures], lines: Sequence[Line], notes: list[str], what: str) -> str:
    """Tables in Markdown."""
    head = "| engine | tok/s | TTFT p50 ms | p99 | ITL p50 ms | p99 | CPU s |"
    rows = [f"All at once ({what}):", "", head, "|---|---|---|---|---|---|---|"]
    for name, one in table.items():
        cells = ["–" if math.isnan(value) else f"{value:.1f}" for value in one]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    if lines:
        rows += ["", "| what | measured |", "|---|---|"]
        rows += [f"| {line.what} | {line.measured} |" for line in lines]
    rows += [f"\nNot measured: {note}" for note in notes]
    return "\n".join(rows) + "\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./dev bench llm", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="a model of 100 million parameters, one round")
    add("--variants", type=names(llm_ours.VARIANTS), default=list(llm_ours.VARIANTS),
        metavar="NAME,…", help="of this server: " + ", ".join(llm_ours.VARIANTS))  # fmt: skip
    add("--others", type=names(("vllm W8A8", *OTHERS)), default=["vllm W8A8", *OTHERS],
        metavar="NAME,…", help="vllm W8A8, " + ", ".join(OTHERS) + "; '' for none")  # fmt: skip
    add("--scenes", type=names(SCENES), default=list(SCENES), metavar="NAME,…",
        help=", ".join(SCENES) + "; '' for none")  # fmt: skip
    add("--model", default="int8", help="the variant the scenes are played with (int8)")
    add("--rounds", type=int, metavar="N", help="interleaved rounds to take medians of (3)")
    add("--requests", type=int, metavar="N", help="requests at once (32)")
    add(
        "--sampling",
        choices=list(SAMPLINGS),
        default="top-p",
        help="how tokens are chosen (top-p); transformers is always greedy",
    )
    add("--threads", type=int, default=2, help="threads of every engine (2)")
    add("--markdown", type=Path, metavar="FILE")
    add("--json", type=Path, metavar="FILE")
    add("--cache", type=Path, default=Path(".cache"), metavar="DIR")
    return parser


if __name__ == "__main__":
    sys.exit(main())
