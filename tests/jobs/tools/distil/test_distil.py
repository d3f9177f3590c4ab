"""Distilling a version: the student learns its answers from rows without labels."""

from pathlib import Path

import pytest
import torch

from control.jobs.messages import CurvePoint
from control.jobs.specs.distil import DistilSpec
from jobs.tools.distil.soft_loss import as_logits, soft_loss
from support.recipes import RECIPE
from support.tools import run_tool

UNLABELLED = RECIPE.replace(
    "        yield patterns[targets] + noise, targets",
    "        images = patterns[targets] + noise\n"
    "        yield (images, targets) if held_out else images",
)


def test_equal_logits_lose_nothing() -> None:
    logits = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    assert float(soft_loss(logits + 3.0, logits, 4.0)) == pytest.approx(0.0, abs=1e-6)


def test_the_loss_is_the_divergence_times_the_squared_temperature() -> None:
    student, teacher = torch.tensor([[0.0, 0.0]]), torch.tensor([[2.0, 0.0]])
    wanted = torch.softmax(teacher / 2, 1)
    expected = 4 * float((wanted * (wanted / 0.5).log()).sum())
    assert float(soft_loss(student, teacher, 2.0)) == pytest.approx(expected, rel=1e-5)


def test_probabilities_become_logits_and_logits_stay() -> None:
    logits = torch.tensor([[1.0, 3.0, 0.5]])
    found = as_logits(logits.softmax(1))
    torch.testing.assert_close(found.softmax(1), logits.softmax(1))
    assert as_logits(logits) is logits


@pytest.mark.slow
def test_a_student_learns_from_rows_without_labels(dots: Path, tmp_path: Path) -> None:
    version = tmp_path / "version"
    version.mkdir()
    for one in dots.iterdir():
        (version / one.name).write_bytes(one.read_bytes())
    (version / "recipe.py").write_text(UNLABELLED)
    spec = DistilSpec(model="dots", version=1, epochs=25, learning_rate=1e-2, floor=20.0)
    run = run_tool(tmp_path / "run", spec, version)
    assert run.report.verdict == "accepted", run.report.reasons
    sizes = next(one for one in run.report.figures if one.name == "parameters")
    assert sizes.before is not None
    assert sizes.after is not None
    assert sizes.after < sizes.before / 4
    losses = [
        one.value for one in run.messages if isinstance(one, CurvePoint) and one.curve == "loss"
    ]
    assert losses[-1] < losses[0] / 2


@pytest.mark.slow
def test_labels_that_are_wanted_and_missing_are_refused(dots: Path, tmp_path: Path) -> None:
    version = tmp_path / "version"
    version.mkdir()
    for one in dots.iterdir():
        (version / one.name).write_bytes(one.read_bytes())
    (version / "recipe.py").write_text(UNLABELLED)
    run = run_tool(tmp_path / "run", DistilSpec(model="dots", version=1, hard=0.5), version)
    assert "hard is 0.5, but batches('train') gave inputs without targets" in run.refusal
