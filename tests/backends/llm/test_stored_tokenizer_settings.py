"""Padding and truncation stored in tokenizer.json change nothing: vectors are transformers' own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from backends.llm.embedder import open_embedder
from backends.llm.embedding_plan import read_embedding
from backends.llm.load import LoadSettings
from backends.llm.tokens.tokeniser import read_tokeniser
from support.embedding import LONGEST, make_encoder, rows_of, say_pooling

TEXTS = ("a fox", "A hen and a fox, and a hen", "fox hen " * 20)
PIECES = ("a", "fox", "hen", "and", ",", "f", "o", "x", "h", "e", "n", "d")


def wordpiece() -> Tokenizer:
    """As BERT's: lower case, [CLS] and [SEP] around the text."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *PIECES, "##o", "##x", "##en"]
    made = Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.decoder = decoders.WordPiece()
    made.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    return made


def byte_pairs() -> Tokenizer:
    """As RoBERTa's: bytes, <s> and </s>; the padding token is number 1."""
    letters = ["<s>", "<pad>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())[:150]]
    made = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<s>", "<pad>", "</s>"])
    return made


def unigram() -> Tokenizer:
    """As XLM-R's: pieces with a score each, spaces as ▁."""
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces += [(f"▁{one}", -2.0) for one in PIECES] + [(one, -3.0) for one in PIECES]
    made = Tokenizer(models.Unigram(pieces, unk_id=3))
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    made.decoder = decoders.Metaspace()
    made.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
    return made


KINDS: dict[str, tuple[str, Callable[[], Tokenizer]]] = {
    "wordpiece": ("bert", wordpiece),
    "byte pairs": ("roberta", byte_pairs),
    "unigram": ("xlm-roberta", unigram),
}
STORED = {
    "neither": (False, False),
    "padding": (True, False),
    "truncation": (False, True),
    "both": (True, True),
}


def save(folder: Path, kind: str, stored: str = "both") -> None:
    made = KINDS[kind][1]()
    padding, truncation = STORED[stored]
    if padding:
        made.enable_padding(length=64, pad_id=1, pad_token="<pad>")
    if truncation:
        made.enable_truncation(8)
    made.save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("kind", KINDS)
def test_vectors_of_texts_are_those_of_transformers(kind: str, stored: str, tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    model = make_encoder(KINDS[kind][0], tmp_path)
    say_pooling(tmp_path, "mean_tokens")
    save(tmp_path, kind, stored)
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    texts = TEXTS if kind != "byte pairs" else (*TEXTS[:2], "fox hen " * 11)
    wanted = [rows_of(model, tuple(theirs(text)["input_ids"])).mean(0) for text in texts]
    tokens = [read_tokeniser(tmp_path).encode(text) for text in texts]
    found = open_embedder(tmp_path, LoadSettings(64 << 20, "float32")).embed(tokens)
    expected = torch.nn.functional.normalize(torch.stack(wanted))
    torch.testing.assert_close(torch.from_numpy(found), expected, atol=1e-4, rtol=0.0)


@pytest.mark.parametrize(
    ("sentence", "tokenizer", "longest"),
    [
        (None, None, LONGEST),
        ({"max_seq_length": 24}, {"model_max_length": 48}, 24),
        ({"max_seq_length": None}, {"model_max_length": 48}, 48),
        (None, {"model_max_length": 48}, 48),
        (None, {"model_max_length": 10**30}, LONGEST),
        (None, {"model_max_length": 1e30}, LONGEST),
        ({"max_seq_length": LONGEST + 2}, None, LONGEST),
    ],
)
def test_the_longest_text_is_what_sentence_transformers_takes(
    sentence: Any, tokenizer: Any, longest: int, tmp_path: Path
) -> None:
    make_encoder("bert", tmp_path)
    for name, said in (("sentence_bert_config", sentence), ("tokenizer_config", tokenizer)):
        if said is not None:
            (tmp_path / f"{name}.json").write_text(json.dumps(said))
    plan = read_embedding(tmp_path)
    assert plan is not None
    assert plan.longest == longest
    asked = read_embedding(tmp_path, "mean", 64)
    assert asked is not None
    assert asked.longest == 64


def test_texts_are_lowered_where_the_sentence_config_says_so(tmp_path: Path) -> None:
    save(tmp_path, "unigram")
    plain = read_tokeniser(tmp_path).encode("a fox")
    assert read_tokeniser(tmp_path).encode("A FOX") != plain
    (tmp_path / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    assert read_tokeniser(tmp_path).encode("A FOX") == plain
