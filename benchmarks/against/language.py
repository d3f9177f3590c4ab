"""Tokens a second of a random language model, heard as streams over HTTP."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from benchmarks import llm_model, llm_ours
from benchmarks.against.turns import Measurement, Subject
from benchmarks.against.verdict import TOKENS_PER_S
from benchmarks.llm_workloads import at_once, renewed
from benchmarks.peers import modelyard
from benchmarks.peers.seam import Peer

SIZE, VARIANT, THREADS = "100m", "int8", 2
STREAMS = 16
"""At once: with two threads they take seconds."""


def prepare(cache: Path, size: str = SIZE, variant: str = VARIANT, threads: int = THREADS) -> Path:
    """A repository with the random model in one variant, which both trees serve."""
    llm_model.ensure(size, cache / f"llm-{size}")
    checkpoint = cache / f"llm-{size}" / llm_model.PLAIN
    return llm_ours.write(cache / "llm-against", checkpoint, [variant], threads)


@contextmanager
def _started(repository: Path, cache: Path, tree: Path) -> Iterator[Peer]:
    """Its first streams are not measured."""
    with modelyard.settled(repository, cache, tree) as peer:
        LLM.measurements[0].measure(peer, 0.0)
        yield peer


def streams(model: str, vocabulary: int, requests: int) -> Measurement:
    """So many streams that begin at once; when all have ended the next begin, until the time is
    over, so the last may take longer. No prompt begins like an earlier one."""
    asks = at_once(requests, vocabulary)
    numbers = count(1)

    def measure(peer: Peer, duration_s: float) -> float:
        tokens, taken_s = 0, 0.0
        while not tokens or taken_s < duration_s:
            heard, wall_s = llm_ours.ask(peer, model, renewed(asks, next(numbers)))
            tokens += sum(one.tokens for one in heard)
            taken_s += wall_s
        return tokens / taken_s

    return Measurement(f"llm, {requests} streams", TOKENS_PER_S, measure)


LLM = Subject(prepare, _started, (streams(VARIANT, llm_model.SIZES[SIZE]["vocab_size"], STREAMS),))
