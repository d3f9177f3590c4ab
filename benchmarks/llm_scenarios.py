"""What `benchmarks.llm` measures of this server alone: prefixes, long prompts, overload."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from benchmarks.llm_figures import Heard, figures, percentile
from benchmarks.llm_load import send, send_beside
from benchmarks.llm_ours import BOUNDED
from benchmarks.llm_workloads import at_once, long_prompts, poisson, prefix_heavy
from benchmarks.peers.seam import Peer
from benchmarks.process import family

OVERLOAD = 3.0
"""Times as many requests a second as were answered at full load."""


class Line(NamedTuple):
    """One line of the second table."""

    what: str
    measured: str


class Scene(NamedTuple):
    """Where, which model of it, how many tokens it knows, and whether to be brief."""

    ours: Peer
    model: str
    vocabulary: int
    quick: bool


def prefixes(scene: Scene) -> Iterator[Line]:
    """The same load with prompts that share their beginnings, and with prompts that do not."""
    users = 2 if scene.quick else 8
    took = {}
    for shared in (False, True):
        asks = prefix_heavy(scene.vocabulary, shared, users)
        heard, wall_s = send(scene.ours.rest, scene.model, asks)
        took[shared] = wall_s
        name = "shared" if shared else "not shared"
        answered = sum(one.status == 200 for one in heard)
        found = figures(heard, wall_s)
        yield Line(
            f"prefix-heavy, {len(asks)} requests, beginnings {name}",
            f"{wall_s:.1f} s, {answered} answered, TTFT p50 {found.ttft_p50_ms:.0f} ms",
        )
    faster = took[False] / took[True]
    yield Line("prefix-heavy, times as fast with shared beginnings", f"{faster:.1f}")


def stalls(scene: Scene) -> Iterator[Line]:
    """What a token of a running answer waits for, alone and while 4,000-token prompts arrive."""
    count, tokens = (4, 64) if scene.quick else (8, 256)
    asks = [replace(ask, tokens=tokens) for ask in at_once(count, scene.vocabulary, seed=7)]
    alone, wall_s = send(scene.ours.rest, scene.model, asks)
    long = long_prompts(1 if scene.quick else 4, max(1.0, wall_s / 5), scene.vocabulary)
    beside, heard = send_beside(scene.ours.rest, scene.model, asks, long)
    for name, runs in (("alone", alone), ("while 4,000-token prompts arrive", beside)):
        found = figures(runs, 1.0)
        yield Line(
            f"{count} streams {name}, ITL p50 / p99",
            f"{found.itl_p50_ms:.0f} / {found.itl_p99_ms:.0f} ms",
        )
    first = figures(heard, 1.0).ttft_p50_ms
    yield Line("first token of such a prompt, p50", f"{first:.0f} ms")


def overload(scene: Scene) -> Iterator[Line]:
    """Three times what can be answered, for five minutes: goodput, refusals, memory.

    The peak is that of 64 such requests at once, all of which are taken in."""
    seconds = 20.0 if scene.quick else 300.0
    warm = [replace(ask, at_s=0.0) for ask in poisson(64, 2.0, scene.vocabulary)][:64]
    full, wall_s = send(scene.ours.rest, BOUNDED, warm)
    peak_tokens = sum(one.tokens for one in full if one.status == 200) / wall_s
    peak_rate = sum(one.status == 200 for one in full) / wall_s
    before = _resident_mb(scene.ours)
    asks = poisson(OVERLOAD * peak_rate, seconds, scene.vocabulary)
    heard, _ = send(scene.ours.rest, BOUNDED, asks)
    yield from _overloaded(heard, seconds, peak_tokens)
    yield Line(
        "resident memory of all processes before and after",
        f"{before:.0f} / {_resident_mb(scene.ours):.0f} MB",
    )


def _overloaded(heard: list[Heard], seconds: float, peak_tokens: float) -> Iterator[Line]:
    inside = [one for one in heard if one.status == 200 and one.ended_s <= seconds]
    goodput = sum(one.tokens for one in inside) / seconds
    refused = sorted(one.ended_s - one.sent_s for one in heard if one.status == 429)
    others = sorted({one.status for one in heard} - {200, 429})
    yield Line(
        f"overload, {OVERLOAD:g} times capacity for {seconds:.0f} s: goodput",
        f"{goodput:.0f} tok/s, {100 * goodput / peak_tokens:.0f} % of the {peak_tokens:.0f} alone",
    )
    yield Line(
        f"of {len(heard)} requests, answered 429, and how fast",
        f"{len(refused)}, p50 {percentile(refused, 0.5) * 1e3:.0f}, "
        f"p99 {percentile(refused, 0.99) * 1e3:.0f} ms; other statuses: {others or 'none'}",
    )


def _resident_mb(ours: Peer) -> float:
    """Of the gateway and everything it has started, shared pages by share."""
    total = 0
    for pid in family(ours.process.pid):
        try:
            with open(f"/proc/{pid}/smaps_rollup") as lines:
                total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except OSError:
            continue
    return total * 1024 / 1e6
