"""`request_body.*`: each mistake is a finding with its place."""

from pathlib import Path

import pytest

from repository.config.positions import Positions
from repository.config.read import parse
from repository.config.validate import validate

WHERE = Path("m/config.pbtxt")
BYTES = 'input { name: "B" data_type: TYPE_STRING dims: 1 }\n'
OPTIONAL = 'input { name: "O" data_type: TYPE_FP32 dims: 3 optional: true }\n'
NUMBERS = 'input { name: "N" data_type: TYPE_FP32 dims: 3 }\n'


def findings(inputs: str, key: str, value: str) -> list[str]:
    text = inputs + f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
    found = validate(parse(text, WHERE), Positions(WHERE, text))
    return [f"{one.line} {one.message}" for one in found if one.code == "E162"]


@pytest.mark.parametrize("inputs", [BYTES, BYTES + OPTIONAL, ""])
def test_an_input_that_a_body_can_be_is_no_finding(inputs: str) -> None:
    assert not findings(inputs, "request_body.image", "B")
    assert not findings(inputs, "request_body.text", "B")


@pytest.mark.parametrize("key", ["request_body", "request_body_limit", "request_bodyimage"])
def test_a_key_of_a_model_s_own_is_no_finding(key: str) -> None:
    assert not findings(BYTES, key, "B")


@pytest.mark.parametrize(
    ("inputs", "key", "value", "text"),
    [
        (BYTES, "request_body.image", "X", "2 parameter request_body.image names 'X', which is no"),
        (NUMBERS, "request_body.text", "N", "names 'N', which must be TYPE_STRING with dims: [1]"),
        (BYTES + NUMBERS, "request_body.image", "B", "leaves out the input 'N'; all others must"),
        (BYTES, "request_body.images", "B", "is unknown; did you mean request_body.image?"),
    ],
)
def test_one_that_cannot_is_a_finding(inputs: str, key: str, value: str, text: str) -> None:
    (found,) = findings(inputs, key, value)
    assert text in found
