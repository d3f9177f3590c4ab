"""`NaN` and `Infinity` in large JSON requests: read as in small ones, at a bounded cost."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.codec import json_text
from server.codec.json_large import LARGE_BYTES
from server.codec.json_nan import MOST_STRINGS
from server.codec.json_text import MOST_BYTES_WITH_WORDS, dump, load_document
from server.errors import InvalidRequest

NUMBERS = st.floats() | st.integers(-9, 9) | st.just(-7e-299)
STRINGS = st.text(alphabet='aN\\"', max_size=3) | st.sampled_from(["NaN", '"NaN', "-Infinity\\"])


def body(numbers: str, **fields: Any) -> bytes:
    written = json.dumps(fields)[1:-1]
    return (
        f'{{{written}{"," * bool(fields)}"inputs":[{{"name":"x","datatype":"FP32",'
        f'"data":[{numbers}]}}]}}'
    ).encode()


def long(numbers: str) -> str:
    return f"{numbers}," + "0," * (MOST_BYTES_WITH_WORDS // 2) + "1"


@pytest.fixture
def no_python_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's parser took 4 s for 64 MiB, in which nobody else was served."""

    def refuse(*_args: object) -> None:
        raise AssertionError("a large text was given to Python's parser")

    monkeypatch.setattr(json_text, "_load_tokens", refuse)


@pytest.mark.usefixtures("no_python_parser")
def test_a_large_text_with_nan_among_its_numbers_is_read_without_pythons_parser() -> None:
    text = body(long("NaN,1.5,-Infinity,Infinity"), id="NaN")
    document = load_document(text, 100)
    data = document["inputs"][0]["data"]
    assert isinstance(data, np.ndarray)
    assert np.isnan(data[0])
    assert data[1:5].tolist() == [1.5, -math.inf, math.inf, 0]
    assert document["id"] == "NaN"


@given(st.lists(NUMBERS, max_size=4), STRINGS)
def test_a_large_text_reads_as_a_small_one(numbers: list[float], string: str) -> None:
    text = body(json.dumps(numbers)[1:-1], id=string)
    padded = text[:-1] + b" " * LARGE_BYTES + b"}"
    small, large = load_document(text, 100), load_document(padded, 100)
    assert large["id"] == small["id"]
    expected = small["inputs"][0]["data"]
    np.testing.assert_array_equal(np.array(large["inputs"][0]["data"]), np.array(expected))


@pytest.mark.parametrize(
    "malformed", ["1NaN", "NaN1", "NaN.5", "-NaN", "NaNNaN", "1eNaN", "--Infinity"]
)
def test_words_that_touch_a_number_stay_malformed_in_a_large_text(malformed: str) -> None:
    with pytest.raises(InvalidRequest, match="failed to parse the request JSON buffer"):
        load_document(body(long(malformed)), 100)


@pytest.mark.parametrize(
    "text",
    [
        body(long("0"), parameters={"p": math.nan}),
        body(long("0"), parameters={"p": math.nan}).replace(b"FP32", b"INT8"),
        body(long("NaN")).replace(b"FP32", b"INT8"),
        body(long("NaN, -7e-299")),
        body(long("NaN"), id=[""] * MOST_STRINGS),
        body(long('NaN"')),
    ],
)
def test_nan_elsewhere_in_a_large_text_is_refused_with_what_would_work(text: bytes) -> None:
    with pytest.raises(InvalidRequest, match=r"more than 1048576 bytes .* binary form"):
        load_document(text, 100)


def test_nan_anywhere_in_a_small_text_is_read() -> None:
    document = load_document(b'{"parameters":{"p":NaN},"inputs":[{"data":[[Infinity]]}]}', 100)
    assert math.isnan(document["parameters"]["p"])
    assert document["inputs"][0]["data"] == [[math.inf]]


@given(
    st.lists(st.floats(width=32), max_size=6),
    st.sampled_from([np.float16, np.float32, np.float64]),
)
def test_an_answer_has_words_for_what_is_no_number(values: list[float], dtype: Any) -> None:
    with np.errstate(over="ignore"):
        array = np.array(values, dtype)
    outputs = [{"name": "null", "data": array}, {"name": "NaN", "data": ["null", "a b"]}]
    found = json.loads(dump({"outputs": outputs, "parameters": {"p": math.inf, "q": None}}))
    np.testing.assert_array_equal(np.array(found["outputs"][0]["data"], dtype), array)
    assert found["outputs"][1]["data"] == ["null", "a b"]
    assert found["parameters"] == {"p": math.inf, "q": None}


def test_an_answer_with_nan_is_not_rendered_by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 million numbers held the loop for 2 s."""
    monkeypatch.delattr(json, "dumps")
    data = np.array([math.nan, 0.1, -math.inf], np.float32)
    assert dump({"data": data}) == b'{"data":[NaN,0.1,-Infinity]}'
