"""Latency of two sessions on the same rows."""

import numpy as np
import onnxruntime

from jobs.tools.measure.latency import LatencyPair, measure_in_turns
from jobs.tools.networks.sessions import fixed_rows
from jobs.tools.networks.tensors import Rows


def measure_sessions(
    before: onnxruntime.InferenceSession,
    after: onnxruntime.InferenceSession,
    rows: Rows,
    batch: int,
) -> list[LatencyPair]:
    """Latency at a batch size, rows repeated to fill it; none where the network fixes another."""
    if fixed_rows(before) not in (0, batch):
        return []
    count = len(next(iter(rows.values())))
    chosen = np.arange(batch) % count
    given = {name: array[chosen] for name, array in rows.items()}
    pair = measure_in_turns(lambda: before.run(None, given), lambda: after.run(None, given), batch)
    return [pair]
