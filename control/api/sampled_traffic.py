"""Sampled requests as the traffic that a profile sends again. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from control.gateways.queries import SampledRequest
from control.jobs.traffic import Traffic, TrafficRequest, TrafficTensor

MOST_REQUESTS = 500
_ANSWERED = "ok"


def traffic_of(samples: Sequence[SampledRequest]) -> Traffic:
    """Those that were answered, the oldest first. `samples` come newest first."""
    answered = sorted((one for one in samples if one.state == _ANSWERED), key=lambda one: one.at)
    return tuple(
        TrafficRequest(one.at - answered[0].at, tuple(map(_tensor, one.inputs))) for one in answered
    )


def _tensor(kept: Mapping[str, Any]) -> TrafficTensor:
    about = kept["about"] or {}
    whole = "values" in kept and not kept["more"]
    values = kept["values"] if whole and not _is_text(kept) else ()
    return TrafficTensor(
        kept["name"], kept["datatype"], tuple(kept["shape"]), tuple(values),
        about.get("least"), about.get("most"), about.get("mean"),
    )  # fmt: skip


def _is_text(kept: Mapping[str, Any]) -> bool:
    return bool(kept["datatype"] == "BYTES")
