"""What `--metrics-config` says: Triton's `KEY=VALUE`, as often as needed. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from server.settings.kinds import BOOLEAN, ValueKind

COUNTERS, HISTOGRAMS = "counter_latencies", "histogram_latencies"
ALLOWED = f"{COUNTERS}=BOOL or {HISTOGRAMS}=BOOL (summaries are not offered: use the histograms)"


class MetricsConfig(NamedTuple):
    """Which of Triton's metrics are shown. `counters`: the durations summed up; `histograms`: its
    histogram of first responses; `cpu`: those of the machine."""

    counters: bool = True
    histograms: bool = False
    cpu: bool = True


def parse(items: Sequence[str], cpu: bool = True) -> MetricsConfig:
    """What `items` add up to; of one key the last counts. Raises ValueError."""
    found = {COUNTERS: True, HISTOGRAMS: False}
    for item in items:
        key, _, value = item.partition("=")
        if key not in found:
            raise ValueError(f"'{key}' is not known")
        found[key] = BOOLEAN.read(value)
    return MetricsConfig(found[COUNTERS], found[HISTOGRAMS], cpu)


def _read(text: str) -> str:
    parse((text,))
    return text


METRICS_CONFIG = ValueKind("KEY=BOOL", ALLOWED, _read, (str,))
