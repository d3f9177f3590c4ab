"""Distilling a version: the student learns its answers from rows without labels."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from control.jobs.messages import CurvePoint, Task
from control.jobs.specs.distil import DistilSpec
from jobs.tools.distil.run import WithSoftmax, _asked
from jobs.tools.distil.soft_loss import are_probabilities, as_logits, soft_loss
from jobs.tools.training.recipe import Recipe
from jobs.tools.work import WorkRefused
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


def recipe_of(version: Path, text: str) -> Recipe:
    version.mkdir()
    (version / "recipe.py").write_text(text)
    task = Task("job-1", DistilSpec(model="dots", version=1), str(version), {}, "", "", "", 1, 1)
    return Recipe(task, DistilSpec(model="dots", version=1))


def test_a_single_column_teaches_nothing_and_is_refused(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path / "version", "")
    rows, network = torch.ones(4, 3), torch.nn.Linear(3, 1)
    with pytest.raises(WorkRefused, match=r"give \[4, 1\]; a student learns logits .* of two"):
        _asked(recipe, network, (rows,), network(rows))


def test_a_student_of_probabilities_gives_probabilities() -> None:
    student = torch.nn.Linear(3, 4)
    rows = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(WithSoftmax(student)(rows), student(rows).softmax(-1))
    assert are_probabilities(WithSoftmax(student)(rows))
    assert not are_probabilities(student(rows))


@pytest.mark.slow
def test_a_version_that_ends_in_a_softmax_still_does(dots: Path, tmp_path: Path) -> None:
    version = tmp_path / "version"
    version.mkdir()
    for one in dots.iterdir():
        (version / one.name).write_bytes(one.read_bytes())
    network = onnx.load(version / "model.onnx")
    for node in network.graph.node:
        node.output[:] = ["raw" if name == "LOGITS" else name for name in node.output]
    network.graph.node.append(onnx.helper.make_node("Softmax", ["raw"], ["LOGITS"], axis=-1))
    onnx.save(network, version / "model.onnx")
    spec = DistilSpec(model="dots", version=1, epochs=4, learning_rate=1e-2, floor=100.0)
    run = run_tool(tmp_path / "run", spec, version)
    assert run.report.verdict == "accepted", run.report.reasons
    (found,) = run.answer({"IMAGE": np.ones((3, 1, 8, 8), np.float32)})
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-5)


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
