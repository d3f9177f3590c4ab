"""How a peer's program and the benchmark speak: a line of JSON for a run, a line back.

Only the standard library: this runs in every peer's environment.
"""

import json
import sys
import time
from collections.abc import Callable

Asks = list[tuple[list[int], int, dict[str, float]]]
"""Prompt tokens, how many tokens the answer is to have, and how they are chosen (`temperature`,
`top_p` if there is one)."""
Arrivals = list[list[float]]
"""For each ask, when its tokens came, in seconds from the start; empty without streaming."""


def answer(run: Callable[[Asks], Arrivals]) -> None:
    """Say READY, then run whatever is asked for until the input ends."""
    out = sys.stdout
    sys.stdout = sys.stderr  # what libraries print is no answer
    print("READY", file=out, flush=True)
    for line in sys.stdin:
        asks = [tuple(ask) for ask in json.loads(line)]
        wall, cpu = time.perf_counter(), time.process_time()
        arrivals = run(asks)
        told = {
            "wall_s": time.perf_counter() - wall,
            "cpu_s": time.process_time() - cpu,
            "arrivals": arrivals,
            "tokens": [count for _, count, _ in asks],
        }
        print("RESULT " + json.dumps(told), file=out, flush=True)
