"""What a push is told of its jobs.json: the place of a mistake, and what its pusher lacks."""

import json
from pathlib import Path
from typing import Any

import pytest

from control.access.scopes import Principal, Role, parse_scopes
from control.git.push.pipeline_steps import DeclaredSteps, model_steps, pusher_findings
from control.pipelines.steps import FILE
from repository.findings import Finding

SAFE, CODE = ("onnx",), ("onnx", "python")


def told(folder: Path, *steps: Any, formats: tuple[str, ...] = SAFE) -> list[Finding]:
    (folder / FILE).write_text(json.dumps({"steps": steps}, indent=1))
    return model_steps(folder, "digits", formats, "vision")[1]


def declared(folder: Path, *steps: Any) -> DeclaredSteps:
    (folder / FILE).write_text(json.dumps({"steps": steps}))
    found, wrong = model_steps(folder, "digits", CODE, "vision")
    assert wrong == []
    return found


def test_a_model_without_the_file_declares_nothing(tmp_path: Path) -> None:
    assert model_steps(tmp_path, "digits", SAFE, "vision") == (DeclaredSteps(), [])


def test_a_wrong_field_is_told_by_line_and_column(tmp_path: Path) -> None:
    (found,) = told(tmp_path, {"type": "optimise"}, {"type": "quantise", "samples": 1})
    assert (found.code, found.line, found.column) == ("E472", 8, 15)
    assert "step 2: samples is 1; it must be a whole number of at least 8" in found.message


def test_a_file_that_is_cut_off_is_told_where_it_ends(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"steps": [\n{"type": ')
    (_, (found,)) = model_steps(tmp_path, "digits", SAFE, "vision")
    assert (found.code, found.line) == ("E472", 2)


def test_data_must_lie_in_the_model_s_folder_or_a_version_s(tmp_path: Path) -> None:
    step = {"type": "quantise", "data": "rows.npz"}
    (found,) = told(tmp_path, step)
    assert (found.line, found.column) == (5, 12)
    assert "push it with the model" in found.message
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "rows.npz").touch()
    assert told(tmp_path, step) == []
    assert told(tmp_path, {**step, "data": "/srv/rows.npz"}) == []


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("a" * 300, "each name of at most 255 bytes"),
        ("a/" * 1300, "and 32 folders"),
        ("sampled", "no request has been sampled of a version that is just pushed"),
    ],
)
def test_data_that_no_file_can_be_is_told_by_line_and_column(
    tmp_path: Path, data: str, words: str
) -> None:
    (tmp_path / "3").mkdir()
    (found,) = told(tmp_path, {"type": "profile", "data": data})
    assert (found.code, found.line, found.column) == ("E472", 5, 12)
    assert words in found.message


@pytest.mark.parametrize("step", [{"type": "prune"}, {"type": "convert", "trusted": True}])
def test_steps_that_run_code_take_a_repository_that_allows_it(tmp_path: Path, step: Any) -> None:
    (tmp_path / "recipe.py").touch()
    (found,) = told(tmp_path, step)
    assert (found.code, found.line, found.column) == ("E473", 3, 3)
    assert "modelyard repo change vision --add-format python" in found.message
    assert told(tmp_path, step, formats=CODE) == []


@pytest.mark.parametrize(
    ("scopes", "role", "plain", "trusting"),
    [
        (None, Role.ADMIN, "", ""),
        (None, Role.OPERATOR, "", "takes the role admin"),
        ("push:vision operate", Role.ADMIN, "", "lacks the scope admin"),
        ("push:vision", Role.OPERATOR, "lacks the scope operate", "takes the role admin"),
    ],
)
def test_a_pusher_needs_what_asking_for_the_jobs_takes(
    tmp_path: Path, scopes: str | None, role: Role, plain: str, trusting: str
) -> None:
    pusher = Principal("user:kim", role, parse_scopes(scopes.split()) if scopes else None)
    steps = {"type": "optimise"}, {"type": "convert", "trusted": True}
    for step, words in zip(steps, (plain, trusting), strict=True):
        found = pusher_findings(pusher, {"digits": declared(tmp_path, step)})
        assert [one.code for one in found] == (["E473"] if words else [])
        assert not words or words in found[0].message


def test_a_model_without_steps_needs_nothing() -> None:
    pusher = Principal("user:kim/token:1", Role.VIEWER, ())
    assert pusher_findings(pusher, {"digits": DeclaredSteps()}) == []
