"""Quantising language models, in a process of its own; the engine serves what is written."""

import json
from pathlib import Path

import pytest
import torch

from control.jobs.specs.quantise_llm import QuantiseLlmSpec
from support.llm import VARIANTS, load_decoder, logits, make_checkpoint, prompt, save_tokeniser
from support.tools import ToolRun, run_tool

TEXT = "\n".join(f"line {at} of a text that says {at * at} things" for at in range(400))
FAMILIES = ("llama", "llama-tied-biased", "mistral-window", "qwen2", "qwen3", "granite", "olmo2")


def source(folder: Path, variant: str = "llama") -> Path:
    folder.mkdir(parents=True)
    make_checkpoint(variant, folder, num_hidden_layers=1)
    save_tokeniser(folder)
    (folder / "config.pbtxt").write_text('name: "words"\nbackend: "llm"\n')
    return folder


def run(folder: Path, version: Path, text: str = TEXT, **fields: object) -> ToolRun:
    (folder / "text.txt").write_text(text)
    given = {"model": "words", "version": 1, "samples": 4, "length": 48, "floor": 50.0, **fields}
    spec = QuantiseLlmSpec(**given)  # type: ignore[arg-type]
    return run_tool(folder / "run", spec, version, folder / "text.txt")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rtn", "gptq", "awq"])
def test_the_engine_answers_nearly_as_before(method: str, tmp_path: Path) -> None:
    version = source(tmp_path / "source")
    found = run(tmp_path, version, method=method)
    assert found.report.verdict == "accepted", found.report.reasons
    assert 'key: "precision"' in found.config()
    assert 'string_value: "int4"' in found.config()
    span = _span()
    before, after = (
        logits(load_decoder(one), span).flatten() for one in (version, found.output / "1")
    )
    assert torch.nn.functional.cosine_similarity(before, after, 0) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("variant", FAMILIES)
def test_every_family_keeps_its_perplexity_in_eight_bits(variant: str, tmp_path: Path) -> None:
    assert variant in VARIANTS
    found = run(tmp_path, source(tmp_path / "source", variant), method="gptq", bits=8, floor=3.0)
    assert found.report.verdict == "accepted", found.report.reasons
    span = _span()
    before, after = (
        logits(load_decoder(one), span).flatten()
        for one in (tmp_path / "source", found.output / "1")
    )
    assert torch.nn.functional.cosine_similarity(before, after, 0) > 0.999


@pytest.mark.slow
def test_more_perplexity_than_allowed_is_refused(tmp_path: Path) -> None:
    report = run(tmp_path, source(tmp_path / "source"), method="rtn", floor=0.0).report
    assert report.verdict == "refused"
    assert "0 % are allowed" in report.reasons[0]


REFUSED = {
    "an unknown family": ({"model_type": "gemma2"}, TEXT, "model_type is 'gemma2'"),
    "too little text": ({}, "a\nb\n", "not even one row of 48"),
    "one line": ({}, "a", "has 1 lines of text; write a document a line"),
    "quantised already": (
        {"quantization_config": {"quant_method": "gptq"}}, TEXT, "quantised already",
    ),
    "tensors of another shape": ({"intermediate_size": 160}, TEXT, "size mismatch"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_refused_with_a_reason(case: str, tmp_path: Path) -> None:
    changes, text, reason = REFUSED[case]
    version = source(tmp_path / "source")
    config = json.loads((version / "config.json").read_text())
    (version / "config.json").write_text(json.dumps(config | changes))
    assert reason in run(tmp_path, version, text).refusal


def _span():  # type: ignore[no-untyped-def]
    from backends.llm.span import Span

    return Span(prompt(1, 20), 0, range(2), 20)
