"""What jobs.json may declare, and where it is wrong."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.pipelines.steps import (
    LARGEST_BYTES,
    MOST_STEPS,
    BadSteps,
    JobStep,
    ResultAlias,
    ResultRollout,
    Step,
    declared_steps,
)

OPTIMISE, QUANTISE = {"type": "optimise"}, {"type": "quantise"}


def read(*steps: Any) -> tuple[Step, ...]:
    return declared_steps(json.dumps({"steps": steps}).encode(), "digits")[1]


def test_steps_are_jobs_on_the_pushed_model_and_then_a_rollout() -> None:
    limits = {"threads": 2}
    first, second, third = read(
        OPTIMISE,
        {"type": "quantise", "data": "rows.npz", "floor": 0.9, "limits": limits},
        {"type": "rollout", "mode": "manual", "hold": "5m"},
    )
    assert isinstance(first, JobStep)
    assert (first.spec.model, first.result_model) == ("digits", "digits-optimised")
    assert isinstance(second, JobStep)
    assert (second.document["floor"], second.limits) == (0.9, limits)
    assert second.result_model == "digits-int8"
    assert isinstance(third, ResultRollout)
    assert third.plan.mode == "manual"


def test_a_result_and_an_alias_have_the_names_that_are_declared() -> None:
    first, second = read({**QUANTISE, "result_model": "small"}, {"type": "alias", "name": "best"})
    assert isinstance(first, JobStep)
    assert first.result_model == "small"
    assert second == ResultAlias("best")


@pytest.mark.parametrize(
    ("steps", "path", "words"),
    [
        ([], "$.steps", "a list of 1 to 8 steps"),
        ([OPTIMISE] * (MOST_STEPS + 1), "$.steps", "a list of 1 to 8 steps"),
        (["optimise"], "$.steps[0]", "must be an object with a type"),
        ([{}], "$.steps[0]", "type is missing; give convert, optimise"),
        ([OPTIMISE, {"type": "shrink"}], "$.steps[1].type", "'shrink'; give convert, optimise"),
        ([{**QUANTISE, "floor": 2}], "$.steps[0].floor", "a number of at least 0 and of at most 1"),
        ([{**QUANTISE, "flor": 2}], "$.steps[0].flor", "no field 'flor'"),
        ([{**QUANTISE, "data": "../x.npz"}], "$.steps[0].data", "without '..'"),
        ([{**QUANTISE, "version": 2}], "$.steps[0].version", "leave version out"),
        ([{**QUANTISE, "model": "x"}], "$.steps[0].model", "leave model out"),
        ([{**QUANTISE, "limits": {"thread": 2}}], "$.steps[0].limits", "no field 'thread'"),
        ([{**QUANTISE, "limits": 2}], "$.steps[0].limits", "an object"),
        ([{**OPTIMISE, "result_model": "digits"}], "$.steps[0].result_model", "only pushes change"),
        ([{"type": "rollout"}], "$.steps[0].type", "the first step must be a job"),
        ([OPTIMISE, {"type": "rollout"}, QUANTISE], "$.steps[1].type", "only be the last step"),
        ([OPTIMISE, {"type": "rollout", "mode": "x"}], "$.steps[1].mode", "mode must be"),
        ([OPTIMISE, {"type": "alias"}], "$.steps[1]", "name is missing"),
        ([OPTIMISE, {"type": "alias", "name": "A b"}], "$.steps[1].name", "cannot name an alias"),
        ([OPTIMISE, {"type": "alias", "name": "a", "to": 1}], "$.steps[1].to", "no field 'to'"),
        ([{"type": "profile"}, OPTIMISE], "$.steps[0].type", "a profile makes no version"),
        ([OPTIMISE, {"type": "prune"}], "$.steps[1].type", "only be the first step"),
    ],
)
def test_a_wrong_step_is_refused_with_its_place(steps: list[Any], path: str, words: str) -> None:
    with pytest.raises(BadSteps, match=r".*") as refused:
        read(*steps)
    assert refused.value.path == path
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("raw", "path", "words"),
    [
        (b"", "", "no JSON"),
        (b'{"steps": [', "", "no JSON"),
        (b"[" * 30_000, "", "no JSON"),
        (b"\xff", "", "no JSON"),
        (b"[]", "$", "the list 'steps'"),
        (b'{"jobs": []}', "$", "the list 'steps'"),
        (b'{"steps": [], "jobs": 1}', "$.jobs", "no 'jobs'"),
        (b" " * (LARGEST_BYTES + 1), "$", "too large"),
    ],
)
def test_a_file_of_another_form_is_refused(raw: bytes, path: str, words: str) -> None:
    with pytest.raises(BadSteps, match=r".*") as refused:
        declared_steps(raw, "digits")
    assert refused.value.path == path
    assert words in str(refused.value)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=6,
)
_NAMES = st.sampled_from(["type", "data", "floor", "limits", "name", "steps", "hold", "rows"])
_STEPS = st.dictionaries(
    _NAMES, _VALUES | st.sampled_from(["optimise", "quantise", "rollout", "alias"]), max_size=5
)


@given(st.lists(_STEPS | _VALUES, max_size=4))
def test_any_document_is_read_or_refused(steps: list[Any]) -> None:
    with suppress(BadSteps):
        assert len(read(*steps)) == len(steps)
