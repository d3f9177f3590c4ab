"""The garbage collector of a gateway: it is to stall no request."""

import gc

COLLECT_AFTER = (50_000, 20, 50)
"""Collector thresholds: requests make next to no cycles, and a full collection stalled the loop for
16 ms; frozen after start-up, nothing long was left to collect under load."""


def quiet_collector() -> None:
    """Take what start-up made out of the collector's sight, and let it look less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
