"""From a request for a language model that is not loaded to its first token.

`python -m benchmarks.llm_cold_start [--against REV] [--size 500m] [--precision int8]` serves the
random checkpoint on demand; each round waits until it is unloaded, asks for eight tokens, and notes
when the first came and what the engine says its load spent time on. The checkpoint is in the page
cache. With --against the rounds of both trees take turns.
"""

import argparse
import json
import re
import sys
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks import llm_model, llm_ours
from benchmarks.against.revision import checked_out
from benchmarks.llm_load import send
from benchmarks.llm_workloads import Ask
from benchmarks.peers import modelyard
from benchmarks.peers.seam import Peer
from benchmarks.process import POLL_S, PeerFailed

CACHE = Path(".cache").resolve()
MODEL = "cold"
UNLOADED_S = 60.0
_TERMS = {"load_on_demand": "true", "idle_unload_secs": "1"}
_PHASE = re.compile(r"([a-z]+) ([\d.]+) s(?: \(([\d,]+) MB\))?")


def main() -> int:
    options = _options()
    size = f"llm-{options.size}"
    llm_model.ensure(options.size, CACHE / size)
    checkpoint = CACHE / size / llm_model.PLAIN
    repository = llm_ours.write(CACHE / "llm-cold", checkpoint, (), options.threads)
    terms = {**_TERMS, "precision": options.precision, "threads": str(options.threads)}
    llm_ours.write_model(repository / MODEL, checkpoint, terms)
    trees: dict[str, Path | None] = {}
    if options.against:
        trees[options.against] = checked_out(options.against, CACHE)
    trees["this"] = None
    seconds: dict[str, list[float]] = {name: [] for name in trees}
    with ExitStack() as stack:
        peers = {
            name: stack.enter_context(modelyard.settled(repository, CACHE, tree))
            for name, tree in trees.items()
        }
        for _ in range(options.rounds):
            for name, peer in peers.items():
                _wait_unloaded(peer)
                seconds[name].append(_first_token_s(peer, options.size))
    for name, found in seconds.items():
        each = ", ".join(f"{one:.2f}" for one in found)
        print(f"{name}: first token after {median(found):.2f} s, median of {each}")
        _print_phases(trees[name])
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--against", default="", metavar="REV", help="also measure this revision")
    parser.add_argument("--size", default="500m", choices=llm_model.SIZES)
    parser.add_argument("--precision", default="int8", choices=("int8", "int4", "bfloat16"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def _first_token_s(peer: Peer, size: str) -> float:
    """Raises PeerFailed where there is none."""
    prompt = [7 * number % llm_model.SIZES[size]["vocab_size"] for number in range(64)]
    heard, _ = send(peer.rest, MODEL, [Ask(tuple(prompt), 8)])
    if heard[0].status != 200 or not heard[0].arrivals:
        raise PeerFailed(f"{MODEL}: status {heard[0].status}")
    return heard[0].arrivals[0]


def _wait_unloaded(peer: Peer) -> None:
    """Raises PeerFailed."""
    until = time.monotonic() + UNLOADED_S
    while time.monotonic() < until:
        asked = urllib.request.Request(f"http://{peer.rest}/v2/repository/index", b"{}")
        with urllib.request.urlopen(asked, timeout=10.0) as answer:
            (row,) = [one for one in json.load(answer) if one["name"] == MODEL]
        if "unloaded" in row.get("reason", ""):
            return
        time.sleep(POLL_S)
    raise PeerFailed(f"{MODEL} is still loaded after {UNLOADED_S:.0f} s: {row}")


def _print_phases(tree: Path | None) -> None:
    """The medians of what the engine has logged."""
    kind = "llm-cold" if tree is None else f"llm-cold_{tree.name}"
    log = (CACHE / "logs" / f"modelyard_{kind}.log").read_text()
    phases: dict[str, list[tuple[float, str]]] = {}
    for line in log.splitlines():
        if "computes with" in line:
            for name, seconds, megabytes in _PHASE.findall(line.partition("tokens; ")[2]):
                phases.setdefault(name, []).append((float(seconds), megabytes))
    for name, found in phases.items():
        size = f"  {found[0][1]} MB" if found[0][1] else ""
        print(f"  {name:12}{median(one for one, _ in found):6.2f} s{size}")


if __name__ == "__main__":
    sys.exit(main())
