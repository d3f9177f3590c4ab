"""Rows of text that do not fit into memory, and text that is held out."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from control.jobs.messages import Task  # noqa: E402 - after torch is known to be there
from control.jobs.specs.quantise_llm import QuantiseLlmSpec  # noqa: E402
from jobs.tools.quantise_llm.memory import available_bytes, check_memory  # noqa: E402
from jobs.tools.quantise_llm.texts import TokenTexts, _check_apart  # noqa: E402
from jobs.tools.work import WorkRefused  # noqa: E402

TEXTS = TokenTexts(torch.zeros(4, 16, dtype=torch.long), torch.zeros(2, 16, dtype=torch.long))


def test_rows_that_do_not_fit_are_refused_with_what_they_take() -> None:
    needed = 2 * 4 * (4 + 2) * 16 * 8
    check_memory(TEXTS, {"hidden_size": 8}, needed)
    with pytest.raises(WorkRefused, match=f"96 tokens of 8 numbers take {needed:,} bytes"):
        check_memory(TEXTS, {"hidden_size": 8}, needed - 1)
    assert available_bytes() > 0


@pytest.mark.parametrize("hidden", [None, 0, "8"])
def test_a_config_without_a_size_is_refused(hidden: object) -> None:
    with pytest.raises(WorkRefused, match="it must be a positive whole number"):
        check_memory(TEXTS, {"hidden_size": hidden}, 1)


@pytest.mark.parametrize("held_out", ["text.txt", "./text.txt", "link.txt"])
def test_text_that_calibrates_is_not_held_out(held_out: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("one\ntwo\n")
    (tmp_path / "link.txt").symlink_to(tmp_path / "text.txt")
    (tmp_path / "other.txt").write_text("one\ntwo\n")
    spec = QuantiseLlmSpec(model="m", calibration="text.txt", held_out=held_out)
    task = Task("1", spec, "", {}, str(tmp_path), "", "", 1, 0)
    with pytest.raises(WorkRefused, match="which is the calibration text"):
        _check_apart(task, spec)
    _check_apart(task, QuantiseLlmSpec(model="m", calibration="text.txt", held_out="other.txt"))
