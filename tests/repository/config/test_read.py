"""Reading config.pbtxt, and what its owner is told when it cannot be read."""

from pathlib import Path

import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from repository.config.explain import explain
from repository.config.positions import Positions
from repository.config.read import LARGEST_BYTES, decode, parse
from repository.errors import ConfigError
from repository.findings import CODES, MOST_FINDINGS, Finding
from repository.model import ModelConfig

WHERE = Path("models/digits/config.pbtxt")


def complaint(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, WHERE)
    (finding,) = caught.value.findings
    return str(finding)


def test_a_good_config_is_read():
    config = parse('name: "digits" input { name: "A" dims: [1, -1] }', WHERE)
    assert config.name == "digits"
    assert list(config.input[0].dims) == [1, -1]


def test_a_finding_reads_as_file_line_column_code_and_message():
    finding = Finding(WHERE, 7, 3, "E103", "max_batch_size must be ≥ 0, got -4")
    expected = "models/digits/config.pbtxt:7:3 E103 max_batch_size must be ≥ 0, got -4"
    assert str(finding) == expected


@pytest.mark.parametrize(
    ("text", "place_and_start"),
    [
        ('nam: "x"', "1:1 E102 unknown field nam in a model config; did you mean name? allowed:"),
        (
            "input {\n  dimms: 3\n}",
            "2:3 E102 unknown field dimms in input[0]; did you mean dims? allowed: allow_ragged",
        ),
        (
            "input [ {}, { data_type: TYPE_FP31 } ]",
            "1:26 E104 input[1].data_type has no value TYPE_FP31; did you mean TYPE_FP32?",
        ),
        (
            'output { data_type: "TYPE_FP32" }',
            "1:21 E105 output[0].data_type must be written without quotes: TYPE_FP32",
        ),
        (
            'max_batch_size: "8"',
            "1:17 E105 max_batch_size must be an integer from -2147483648 to 2147483647, got",
        ),
        ("max_batch_size: 99999999999", "1:17 E105 max_batch_size must be an integer from"),
        ("max_batch_size {}", "1:16 E105 max_batch_size must be an integer from"),
        ("name: 5", "1:7 E105 name must be a quoted string, got 5"),
        ("response_cache { enable: on }", "1:26 E105 response_cache.enable must be true or false"),
        ("dynamic_batching: 5", "1:19 E105 dynamic_batching must be a message in { }, got 5"),
        ("metric_tags { key: 3 }", "1:20 E105 metric_tags[0].key must be a quoted string, got 3"),
        ('name: "a"\nname: "b"', "2:1 E106 name is given twice; give it once"),
        (
            "dynamic_batching {}\nsequence_batching {}",
            "2:1 E106 sequence_batching excludes dynamic_batching, given above",
        ),
        ('input { name: "a"', '1:15 E101 syntax error: Expected "}".'),
        ("input { data_type: 99999999999 }", "1:20 E104 input[0].data_type has no value 9999"),
        ('name: "x', "1:7 E101 syntax error: String missing ending quote"),
        ("@", "1:1 E101 syntax error: Expected identifier or number, got @."),
    ],
)
def test_a_complaint_names_the_place_the_field_the_value_and_what_is_allowed(
    text: str, place_and_start: str
):
    assert complaint(text).startswith(f"{WHERE}:{place_and_start}")


def test_every_mistake_of_a_file_is_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        parse("nam: 1\nmax_batch_size: x\ninput { data_type: FP32 }", WHERE)
    found = [(finding.line, finding.code) for finding in caught.value.findings]
    assert found == [(1, "E102"), (2, "E105"), (3, "E104")]


def test_a_config_that_is_not_text_or_too_large_is_refused():
    with pytest.raises(ConfigError, match="E100 config is not UTF-8 text"):
        decode(b"\xff\xfe", WHERE)
    with pytest.raises(ConfigError, match="E100 config is larger than"):
        decode(b" " * (LARGEST_BYTES + 1), WHERE)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="{}[]<>:,;\"'#-. \n19aeinput_dimsTYPE_FP32", max_size=60))
def test_any_text_is_either_read_as_protobuf_reads_it_or_refused_with_known_codes(text: str):
    expected = ModelConfig()
    try:
        text_format.Parse(text, expected)
    except text_format.ParseError:
        with pytest.raises(ConfigError) as caught:
            parse(text, WHERE)
        assert caught.value.findings
        assert all(finding.code in CODES for finding in caught.value.findings)
    else:
        assert parse(text, WHERE) == expected


def test_a_config_of_every_kind_of_value_is_not_explained_away():
    text = """
    # a comment with { braces
    name: "a" 'b'; max_batch_size: 0x10,
    version_policy: { specific { versions: [1, 2], versions: 3 } }
    input [ { name: "x" data_type: 11 dims: [-1] }, < name: "y" data_type: TYPE_BF16 > ]
    response_cache { enable: True }
    sequence_batching { direct { minimum_slot_utilization: 1.5f }
      control_input { name: "c" control { fp32_false_true: [0, -1e3] } } }
    parameters { key: "a.b" value: { string_value: "}" } }
    metric_tags [ { key: "k" value: "v" }, { key: "l", value: "w" } ]
    """
    assert parse(text, WHERE).name == "ab"
    assert explain(Positions(WHERE, text)) == []


def test_a_megabyte_of_mistakes_is_a_hundred_complaints_and_a_word_of_more():
    with pytest.raises(ConfigError) as caught:
        parse("nonsense: 1\n" * (LARGEST_BYTES // 12), WHERE)
    found = caught.value.findings
    assert [one.code for one in found] == ["E102"] * MOST_FINDINGS + ["E107"]
    assert (found[-1].line, found[-1].column) == (MOST_FINDINGS + 1, 1)
