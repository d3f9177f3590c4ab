"""Sampled requests, sent again: with their own values where all were kept, else with values drawn
from what their statistics say."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import model_config_pb2 as pb

from control.jobs.traffic import TrafficRequest, TrafficTensor, decode_traffic
from jobs.tools.profile.requests import dtype_of, encode_request
from jobs.tools.work import refuse


class TrialRequests(NamedTuple):
    """Complete HTTP requests, and when each came, in seconds after the first. `rows`: of the
    largest. `drawn`: how many have values that were not kept."""

    requests: list[bytes]
    arrivals_s: list[float]
    rows: int
    drawn: int


def sampled_requests(config: pb.ModelConfig, data: str, seed: int) -> TrialRequests:
    """Those of the traffic file `data`. Refuses inputs that the config does not have."""
    traffic = decode_traffic(Path(data).read_bytes())
    draw = np.random.default_rng(seed)
    found, rows, drawn = [], 1, 0
    for one in traffic:
        arrays = _arrays(config, one, draw)
        found.append(encode_request(config, arrays))
        rows = max(rows, len(arrays[0]) if config.max_batch_size else 1)
        drawn += not all(tensor.values for tensor in one.inputs)
    return TrialRequests(found, [one.at_s for one in traffic], rows, drawn)


def _arrays(
    config: pb.ModelConfig, request: TrafficRequest, draw: np.random.Generator
) -> list[NDArray[Any]]:
    given = {one.name: one for one in request.inputs}
    names = [one.name for one in config.input]
    if set(given) != set(names):
        refuse(
            f"a sampled request has the inputs {', '.join(sorted(given))}, and this version takes "
            f"{', '.join(names)}; sample requests to this version"
        )
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
