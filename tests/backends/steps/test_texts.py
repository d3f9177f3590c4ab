"""The step `text`, against the tokenizer's own padding and truncation."""

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from backends.errors import ExecutionFailed, LoadFailed, ModelError
from backends.registry import backend_of
from support.pictures import answered, ask, column, step, step_config
from support.runtime import batch_of, make_version, member

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sleeps", "on", "stove"]


def tokenizer(pad: str = "[PAD]") -> Tokenizer:
    words = {word: number for number, word in enumerate([pad, *WORDS[1:]])}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return made


FILES = {"tokenizer.json": tokenizer().to_str().encode()}
TEXTS = column(b"the cat", b"the cat sleeps on the stove")


def test_texts_become_padded_rows_as_the_tokenizer_itself_pads_them(tmp_path: Path) -> None:
    found = answered(step(tmp_path, "text", files=FILES), TEXT=TEXTS)
    own = tokenizer()
    own.enable_padding()
    want = own.encode_batch([text.decode() for text in TEXTS[:, 0]])
    assert found["input_ids"].tolist() == [row.ids for row in want]
    assert found["attention_mask"].tolist() == [row.attention_mask for row in want]
    assert found["token_type_ids"].tolist() == [row.type_ids for row in want]
    assert found["input_ids"].dtype == np.int64


def test_pairs_have_types_and_are_cut_where_they_are_longest(tmp_path: Path) -> None:
    instance = step(tmp_path, "text", files=FILES, max_length="7", padding="max_length")
    found = answered(instance, TEXT=TEXTS, TEXT_PAIR=column(b"on the stove", b"cat"))
    own = tokenizer()
    own.enable_truncation(7)
    own.enable_padding(length=7)
    want = own.encode_batch([("the cat", "on the stove"), ("the cat sleeps on the stove", "cat")])
    assert found["input_ids"].tolist() == [row.ids for row in want]
    assert found["token_type_ids"].tolist() == [row.type_ids for row in want]


def test_the_side_the_types_and_special_tokens_are_chosen(tmp_path: Path) -> None:
    instance = step(
        tmp_path,
        "text",
        'output { name: "input_ids" data_type: TYPE_INT32 }',
        FILES,
        padding_side="left",
        special_tokens="false",
    )
    found = answered(instance, TEXT=TEXTS)
    assert found["input_ids"].tolist() == [[0, 0, 0, 0, 4, 5], [4, 5, 6, 7, 4, 8]]
    assert found["input_ids"].dtype == np.int32
    assert list(found) == ["input_ids"]


@pytest.mark.parametrize(
    ("parameters", "text", "message"),
    [
        ({}, b"\xff\xfe", "TEXT is not UTF-8"),
        ({"max_bytes": "5"}, b"the cat", "TEXT has 7 bytes, more than the 5 allowed"),
        (
            {"truncation": "false", "max_length": "4"},
            b"the cat sleeps",
            "TEXT has 5 tokens, more than max_length 4, and truncation is off",
        ),
    ],
)
def test_a_text_that_cannot_be_taken_is_refused(
    parameters: dict[str, str], text: bytes, message: str, tmp_path: Path
) -> None:
    error = ask(step(tmp_path, "text", files=FILES, **parameters), TEXT=column(text))
    assert isinstance(error, ModelError)
    assert message in str(error)
    several = ask(
        step(tmp_path / "rows", "text", files=FILES, **parameters), TEXT=column(b"the", text)
    )
    assert f"row 1 of {message}" in str(several)


@pytest.mark.parametrize(
    ("parameters", "files", "text"),
    [
        ({}, {}, r"no tokenizer\.json in folder 1/, which holds nothing"),
        ({}, {"tokenizer.json": b"{}"}, r"tokenizer\.json is not a tokenizer: "),
        ({}, {"tokenizer.json": tokenizer("none").to_str().encode()}, "to fill rows up with"),
        ({"pad_token": "x"}, FILES, "pad_token is 'x', which the tokenizer does not have"),
        ({"max_length": "3"}, FILES, "max_length is 3, but 3 tokens are added"),
        ({"tokenizer": "../t.json"}, FILES, "leads out of the version's folder"),
    ],
)
def test_a_tokenizer_that_cannot_be_used_is_refused(
    parameters: dict[str, str], files: dict[str, bytes], text: str, tmp_path: Path
) -> None:
    version = make_version(tmp_path, step_config("text", parameters))
    for name, content in files.items():
        (version.path / name).write_bytes(content)
    with pytest.raises(LoadFailed, match=text):
        backend_of("text").complete(version, 4)


def test_a_text_the_tokenizer_has_no_token_for_is_refused_alone(tmp_path: Path) -> None:
    made = Tokenizer(models.WordLevel({"[PAD]": 0, "cat": 1}, unk_token="[UNK]"))
    instance = step(tmp_path, "text", files={"tokenizer.json": made.to_str().encode()})
    batch = batch_of(*(member((), TEXT=column(text)) for text in (b"dog", b"cat")))
    refused, taken = instance.execute(batch).results
    assert isinstance(refused, ModelError)
    assert refused.code == "INVALID_ARG"
    assert "its tokenizer cannot read TEXT: " in str(refused)
    assert not isinstance(taken, Exception)
    assert taken["input_ids"].tolist() == [[1]]


def test_a_panic_of_the_tokenizer_is_the_error_of_its_request(tmp_path: Path) -> None:
    panicking = json.loads(tokenizer().to_str())
    panicking["post_processor"]["special_tokens"] = {}
    files = {"tokenizer.json": json.dumps(panicking).encode()}
    error = ask(step(tmp_path, "text", files=files), TEXT=column(b"the cat"))
    assert isinstance(error, ExecutionFailed)
    assert "model 'm' version 1: its tokenizer panicked: " in str(error)


def test_rows_that_have_no_partner_are_refused(tmp_path: Path) -> None:
    instance = step(tmp_path, "text", files=FILES)
    error = ask(instance, TEXT=TEXTS, TEXT_PAIR=column(b"cat"))
    assert isinstance(error, ModelError)
    assert "but TEXT has 2, TEXT_PAIR has 1" in str(error)
