"""Calibration and held-out text as rows of tokens, all of one length."""

from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor

from control.jobs.messages import Task
from control.jobs.specs.quantise_llm import QuantiseLlmSpec
from jobs.tools.work import refuse

MOST_BYTES = 1 << 26
"""Read of a file; more text than that says nothing new to a layer."""
HELD_OUT_SHARE = 5
LINES_AT_ONCE = 1000


class TokenTexts(NamedTuple):
    """Tokens int64 [rows, length]; `calibration` has no row where the method reads none."""

    calibration: Tensor
    held_out: Tensor


def read_texts(task: Task, spec: QuantiseLlmSpec) -> TokenTexts:
    """Raises WorkRefused naming a file that is missing, no text, or too short."""
    tokeniser = _tokeniser(Path(task.source))
    lines = _lines(task, spec.calibration, "calibration")
    if spec.held_out:
        _check_apart(task, spec)
        unseen = _lines(task, spec.held_out, "held_out")
    else:
        cut = len(lines) - max(1, len(lines) // HELD_OUT_SHARE)
        lines, unseen = lines[:cut], lines[cut:]
    held_out = _rows(tokeniser, unseen, spec, "held-out text")
    if spec.method == "rtn":
        return TokenTexts(held_out[:0], held_out)
    return TokenTexts(_rows(tokeniser, lines, spec, "calibration text"), held_out)


def _tokeniser(folder: Path) -> Tokenizer:
    try:
        tokeniser = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # noqa: BLE001 - the library raises Exception itself
        refuse(f"tokenizer.json cannot be read: {error}")
    tokeniser.no_padding()
    tokeniser.no_truncation()
    return tokeniser


def _lines(task: Task, name: str, field: str) -> list[str]:
    if not task.data:
        refuse("text is needed to quantise by and to measure perplexity with: name it in 'data'")
    if Path(name).is_absolute() or ".." in Path(name).parts:
        refuse(f"{field} is '{name}'; it must be a path below 'data'")
    path = _path(task, name)
    if not path.is_file():
        refuse(f"{field}: '{name or path.name}' is no file; name a text file below 'data'")
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES).decode(
                errors="strict" if path.stat().st_size <= MOST_BYTES else "ignore"
            )
    except UnicodeDecodeError as error:
        refuse(f"{field}: {path.name} is no UTF-8 text: byte {error.start} is wrong")
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2:
        refuse(f"{field}: {path.name} has {len(lines)} lines of text; write a document a line")
    return lines


def _path(task: Task, name: str) -> Path:
    return Path(task.data) / name if name else Path(task.data)


def _check_apart(task: Task, spec: QuantiseLlmSpec) -> None:
    calibration, held_out = (_path(task, one) for one in (spec.calibration, spec.held_out))
    if calibration.exists() and held_out.exists() and calibration.samefile(held_out):
        refuse(
            f"held_out is '{spec.held_out}', which is the calibration text; give another file, or "
            "leave held_out out, and the last fifth of the text is kept apart"
        )


def _rows(tokeniser: Tokenizer, lines: list[str], spec: QuantiseLlmSpec, what: str) -> Tensor:
    """Lines strung together and cut, as many rows as wanted and as there are."""
    wanted = spec.samples * spec.length
    tokens: list[int] = []
    for first in range(0, len(lines), LINES_AT_ONCE):
        part = tokeniser.encode_batch(
            lines[first : first + LINES_AT_ONCE], add_special_tokens=False
        )
        tokens += [token for one in part for token in one.ids]
        if len(tokens) >= wanted:
            break
    rows = min(len(tokens) // spec.length, spec.samples)
    if not rows:
        refuse(
            f"the {what} has {len(tokens)} tokens, not even one row of {spec.length}; give more "
            "text, or a smaller 'length'"
        )
    return torch.tensor(tokens[: rows * spec.length]).view(rows, spec.length)
