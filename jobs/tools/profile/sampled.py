"""Sampled requests, sent again: with their own values where all were kept, else with values drawn
from what their statistics say."""

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import model_config_pb2 as pb

from control.jobs.traffic import (
    LEAST_REQUESTS,
    TrafficRequest,
    TrafficTensor,
    decode_traffic,
)
from jobs.tools.profile.requests import DTYPES, dtype_of, encode_request
from jobs.tools.work import refuse

MOST_BYTES = 512 << 20
"""Of all bodies; the newest requests that fit are sent."""


class TrialRequests(NamedTuple):
    """Complete HTTP requests, and when each came, in seconds after the first. `rows`: of the
    largest. Of those sent, `drawn` have values drawn from statistics and `zeros` zeros for values
    without any; of those sampled, `unfit` do not fit the version and `too_large` are together too
    large."""

    requests: list[bytes]
    arrivals_s: list[float]
    rows: int
    drawn: int = 0
    zeros: int = 0
    unfit: int = 0
    too_large: int = 0


def sampled_requests(config: pb.ModelConfig, data: str, seed: int) -> TrialRequests:
    """Those of the traffic file `data` that have the inputs of the config. Refuses fewer than
    LEAST_REQUESTS."""
    wanted = {one.name: np.dtype(dtype_of(one)).itemsize for one in config.input}
    traffic = decode_traffic(Path(data).read_bytes())
    fit = [one for one in traffic if _fits(config, one)]
    unfit = [one for one in traffic if not _fits(config, one)]
    if len(fit) < LEAST_REQUESTS:
        refuse(
            f"{len(fit)} of {len(traffic)} sampled requests fit this version, and {LEAST_REQUESTS} "
            f"are needed: it takes {', '.join(map(_described, config.input))}"
            f"{_other(unfit)}; sample requests to this version"
        )
    sent = _newest(fit, wanted)
    draw = np.random.default_rng(seed)
    bodies, rows = [], 1
    for one in sent:
        arrays = _arrays(config, one, draw)
        bodies.append(encode_request(config, arrays))
        rows = max(rows, len(arrays[0]) if config.max_batch_size else 1)
    return TrialRequests(
        bodies, [one.at_s for one in sent], rows,
        drawn=sum(any(map(_is_drawn, one.inputs)) for one in sent),
        zeros=sum(any(map(_is_unknown, one.inputs)) for one in sent),
        unfit=len(unfit), too_large=len(fit) - len(sent),
    )  # fmt: skip


def _fits(config: pb.ModelConfig, request: TrafficRequest) -> bool:
    given = {one.name: one for one in request.inputs}
    return given.keys() == {one.name for one in config.input} and all(
        given[one.name].datatype == DTYPES[one.data_type][0]
        and _has_dims(given[one.name].shape, one.dims, bool(config.max_batch_size))
        for one in config.input
    )


def _has_dims(shape: Sequence[int], dims: Sequence[int], batches: bool) -> bool:
    shape = shape[1:] if batches else shape
    return len(shape) == len(dims) and all(
        want < 0 or have == want for have, want in zip(shape, dims, strict=True)
    )


def _described(tensor: Any) -> str:
    return f"'{tensor.name}' {DTYPES[tensor.data_type][0]} {list(tensor.dims)}"


def _other(unfit: Sequence[TrafficRequest]) -> str:
    """The inputs of the newest that does not fit."""
    if not unfit:
        return ""
    inputs = (f"'{one.name:.80}' {one.datatype} {list(one.shape)}" for one in unfit[-1].inputs)
    return f", and another brought {', '.join(inputs)}"


def _newest(fit: list[TrafficRequest], item_bytes: dict[str, int]) -> list[TrafficRequest]:
    """As many as MOST_BYTES hold, one at least."""
    left, count = MOST_BYTES, 0
    for one in reversed(fit):
        left -= sum(prod(tensor.shape) * item_bytes[tensor.name] for tensor in one.inputs)
        if left < 0 and count:
            break
        count += 1
    return fit[-count:]


def _is_drawn(tensor: TrafficTensor) -> bool:
    return not tensor.values and tensor.mean is not None


def _is_unknown(tensor: TrafficTensor) -> bool:
    return not tensor.values and tensor.mean is None and bool(prod(tensor.shape))


def _arrays(
    config: pb.ModelConfig, request: TrafficRequest, draw: np.random.Generator
) -> list[NDArray[Any]]:
    given = {one.name: one for one in request.inputs}
    return [_array(given[one.name], dtype_of(one), draw) for one in config.input]


def _array(tensor: TrafficTensor, dtype: Any, draw: np.random.Generator) -> NDArray[Any]:
    if tensor.values:
        return np.array(tensor.values, dtype).reshape(tensor.shape)
    if tensor.least is None or tensor.most is None or tensor.mean is None:
        return np.zeros(tensor.shape, dtype)
    return _drawn(tensor.shape, tensor.least, tensor.most, tensor.mean, draw).astype(dtype)


def _drawn(
    shape: tuple[int, ...], least: float, most: float, mean: float, draw: np.random.Generator
) -> NDArray[Any]:
    """Numbers from `least` to `most` with this mean: uniform on both sides of it."""
    share_above = (mean - least) / (most - least) if most > least else 0.0
    above = draw.random(shape) < share_above
    part = draw.random(shape)
    return np.where(above, mean + part * (most - mean), least + part * (mean - least))
