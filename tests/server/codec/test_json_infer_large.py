"""Large JSON bodies are read and refused like small ones."""

import json
from typing import Any

import numpy as np
import pytest

from repository.config.tensors import BY_NAME
from server.errors import InvalidRequest, ServingError
from support.json_infer import NUMERIC, ask, signature, tensor

LARGE = 40_000


@pytest.mark.parametrize("name", [name for name in NUMERIC if name != "BOOL"])
def test_a_large_body_is_read_like_a_small_one(name: str) -> None:
    kind = BY_NAME[name].dtype.kind
    values = [i % 100 for i in range(LARGE)] if kind in "iu" else [i / 8 for i in range(LARGE)]
    entry = tensor(datatype=name, shape=[LARGE], data=values)
    array = ask({"id": "big", "inputs": [entry]}, signature(name)).inputs["X"]
    np.testing.assert_array_equal(array, np.array(values).astype(BY_NAME[name].dtype))


def test_a_large_body_is_refused_like_a_small_one() -> None:
    wrong: list[tuple[Any, int, str]] = [
        ([0.5] * LARGE + ["a"], LARGE + 1, "non-number as number"),
        ([0.5] * LARGE, LARGE + 1, "Failed to parse 'data' field"),
        ([0.5] * LARGE, LARGE - 1, "Unable to parse 'data': Shape does not match"),
        ([0.5] * LARGE + [None], LARGE + 1, "non-number as number"),
    ]
    for data, count, text in wrong:
        with pytest.raises(ServingError, match=text):
            ask({"inputs": [tensor(shape=[count], data=data)]}, signature())
    small = tensor(datatype="INT8", shape=[LARGE], data=[300] * LARGE)
    with pytest.raises(InvalidRequest, match="300 does not fit INT8"):
        ask({"inputs": [small]}, signature("INT8"))
    with pytest.raises(InvalidRequest, match="failed to parse the request JSON buffer"):
        ask(json.dumps({"inputs": [tensor(data=[1] * LARGE)]}).encode()[:-3], signature())


def test_a_large_body_may_hold_nan_nested_lists_and_text() -> None:
    nested = tensor(shape=[2, LARGE], data=[[0.5] * LARGE, [float("nan")] * LARGE])
    array = ask({"inputs": [nested]}, signature(dims="-1,-1")).inputs["X"]
    assert array.shape == (2, LARGE)
    assert np.isnan(array[1]).all()
    text = tensor(datatype="BYTES", shape=[LARGE], data=["ä"] * LARGE)
    words = ask({"inputs": [text]}, signature("BYTES")).inputs["X"]
    assert words[LARGE - 1] == "ä".encode()
