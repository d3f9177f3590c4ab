"""Known infer bodies, and answers like known ones, are what the codec itself makes of them."""

import json
import random
from typing import Any

import numpy as np
import pytest

from schedulers.request import InferResponse
from server.codec import json_infer
from server.codec.infer_templates import (
    MAX_HEAD_BYTES,
    MAX_TEMPLATES,
    AnswerTemplates,
    BodyTemplates,
)
from server.codec.json_large import LARGE_BYTES
from server.codec.output_format import PLAIN, InferBody, OutputFormat
from server.errors import ServingError
from support.json_infer import NUMERIC, response, signature, tensor
from support.wire_cases import mutated

MODEL = signature(dims="2", max_batch=4)
BINARY = tensor(data=None, shape=[1, 2], parameters={"binary_data_size": 8})
TEXT = tensor(shape=[1, 2])
FLOATS = np.array([1.5, 2], np.float32).tobytes()

Body = tuple[bytes, int | None]


def body(entry: dict[str, Any], blob: bytes | None = None, **fields: Any) -> Body:
    header = json.dumps({"inputs": [entry], **fields}).encode()
    return header + (blob or b""), None if blob is None else len(header)


def read(templates: BodyTemplates | None, one: Body, model: Any = MODEL) -> Any:
    """What a body becomes, in a form to be compared; or the refusal."""
    decode = json_infer.decode if templates is None else templates.decode
    try:
        found = decode(*one, model, 100)
    except ServingError as error:
        return type(error), str(error)
    inputs = {name: (a.dtype, a.shape, a.tobytes()) for name, a in found.inputs.items()}
    parameters = {k: v for k, v in found.parameters.items() if k != "binary_data_output"}
    return found._replace(inputs=inputs, parameters=parameters)


def learned(one: Body, model: Any = MODEL) -> BodyTemplates:
    templates = BodyTemplates()
    for _ in range(2):
        read(templates, one, model)
    return templates


def known(templates: BodyTemplates, one: Body, model: Any = MODEL) -> InferBody | None:
    return templates._find(*one, model)


WANTED = {"outputs": [{"name": "Y", "parameters": {"binary_data": True}}]}
CASES = [
    pytest.param(body(BINARY, FLOATS), body(BINARY, b"\0" * 8), id="binary"),
    pytest.param(
        body(BINARY, FLOATS, parameters={"binary_data_output": True, "priority": 2}),
        body(BINARY, FLOATS, parameters={"binary_data_output": True, "priority": 2}),
        id="binary, with parameters",
    ),
    pytest.param(body(BINARY, FLOATS, **WANTED), body(BINARY, FLOATS, **WANTED), id="wanted"),
    pytest.param(body(TEXT), body(tensor(shape=[1, 2], data=[-7, 1e-9])), id="JSON"),
    pytest.param(
        body(TEXT, **WANTED), body(tensor(shape=[1, 2], data=[0, 1]), **WANTED), id="JSON, wanted"
    ),
]


@pytest.mark.parametrize(("first", "next_one"), CASES)
def test_a_known_body_becomes_what_the_codec_makes_of_it(first: Body, next_one: Body) -> None:
    templates = learned(first)
    assert known(templates, next_one) is not None
    assert read(templates, next_one) == read(None, next_one)


@pytest.mark.parametrize("first", [case.values[0] for case in CASES])
def test_mutations_of_a_known_body_are_read_or_refused_as_by_the_codec(first: Body) -> None:
    templates, dice = learned(first), random.Random(7)
    for _ in range(300):
        data = mutated(dice, first[0])
        length = first[1] if first[1] is None or len(data) >= first[1] else len(data)
        assert read(templates, (data, length)) == read(None, (data, length))


@pytest.mark.parametrize("numbers", ["[1]", "[1, 2, 3]", '["1", 2]', "[1e99, 2]", "[NaN, 1]", "[]"])
def test_numbers_that_the_codec_refuses_or_words_are_as_it_has_them(numbers: str) -> None:
    templates = learned(body(TEXT))
    text = body(TEXT)[0].replace(b"[1.5, 2]", numbers.encode())
    assert read(templates, (text, None)) == read(None, (text, None))


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(body(BINARY, FLOATS, id="7"), id="with an id"),
        pytest.param(body(TEXT, id="7"), id="JSON with an id"),
        pytest.param(body(BINARY, FLOATS, x="y" * MAX_HEAD_BYTES), id="a long header"),
        pytest.param(body(TEXT, x="y" * MAX_HEAD_BYTES), id="JSON with a long head"),
        pytest.param(body({**TEXT, "data": [[1.5, 2]]}), id="nested lists"),
        pytest.param(
            (b'{"x":{"data":[1]},"inputs":[%b]}' % json.dumps(TEXT).encode(), None),
            id="data of something else first",
        ),
    ],
)
def test_what_cannot_stand_for_others_is_not_learned(one: Body) -> None:
    assert known(learned(one), one) is None


def test_a_body_is_known_from_its_second_time_on_and_for_its_version_alone() -> None:
    one, templates = body(BINARY, FLOATS), BodyTemplates()
    read(templates, one)
    assert known(templates, one) is None
    read(templates, one)
    assert known(templates, one) is not None
    assert known(templates, one, signature(dims="2", max_batch=4)) is None


def test_bodies_are_bounded_and_keep_nothing_of_what_was_sent() -> None:
    templates = BodyTemplates()
    for number in range(MAX_TEMPLATES + 1):
        one = body(BINARY, FLOATS, parameters={"p": number})
        for _ in range(2):
            read(templates, one)
    assert len(templates._binary) == 1
    ((_, template),) = templates._binary.items()
    assert template.like.inputs == {}


@pytest.mark.parametrize("datatype", NUMERIC)
@pytest.mark.parametrize("form", [PLAIN, OutputFormat(binary=True), OutputFormat(frozenset("Y"))])
@pytest.mark.parametrize("request_id", ["", 'a "1"'])
def test_an_answer_like_a_known_one_is_what_the_codec_writes(
    datatype: str, form: OutputFormat, request_id: str
) -> None:
    templates = AnswerTemplates()
    dtype = signature(datatype).outputs["Y"].dtype
    for values in ([0, 1], [1, 1], [1, 0]):
        given = InferResponse(request_id, "m", 1, {"Y": np.array([values]).astype(dtype)})
        found, expected = templates.encode(given, form), json_infer.encode(given, form)
        assert b"".join(found.parts) == b"".join(expected.parts)
        assert found.header_length == expected.header_length
    assert templates._fronts


def test_words_among_the_numbers_of_an_answer_are_written_as_the_codec_does() -> None:
    templates = AnswerTemplates()
    for values in ([1, 2], [np.nan, np.inf]):
        given = response(np.array(values, np.float32))
        found = templates.encode(given, PLAIN)
        assert b"".join(found.parts) == b"".join(json_infer.encode(given, PLAIN).parts)


def test_an_answer_is_learned_from_whatever_it_was_first() -> None:
    templates = AnswerTemplates()
    for request_id, number in (("a[", np.nan), ("", 1), ('b"', np.inf), ("c", 2)):
        array = np.array([number, 1], np.float32)
        given = InferResponse(request_id, "m", 1, {"Y": array})
        found = templates.encode(given, PLAIN)
        assert b"".join(found.parts) == b"".join(json_infer.encode(given, PLAIN).parts)
    assert len(templates._fronts) == 1


def test_large_bodies_are_not_looked_up() -> None:
    class Unsliced(bytes):
        def __getitem__(self, key: Any) -> Any:
            raise AssertionError("a part was copied")

    text, binary = body(TEXT), body(BINARY, FLOATS)
    large = Unsliced(text[0] + b" " * LARGE_BYTES)
    assert known(learned(text), (large, None)) is None
    assert known(learned(binary), (large, MAX_HEAD_BYTES + 1)) is None


def test_answers_are_bounded() -> None:
    templates = AnswerTemplates()
    templates.encode(response(np.zeros(LARGE_BYTES, np.float32)), PLAIN)
    templates.encode(InferResponse("", "m" * MAX_HEAD_BYTES, 1, {"Y": np.zeros(1)}), PLAIN)
    assert not templates._fronts
    for size in range(1, MAX_TEMPLATES + 2):
        templates.encode(response(np.zeros(size, np.float32)), PLAIN)
    assert len(templates._fronts) == 1
