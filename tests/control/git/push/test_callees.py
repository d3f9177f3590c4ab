"""Callees of a pushed model are only those that its publisher may use."""

import pytest

from control.access.scopes import Principal, Role, parse_scopes
from control.git.push.callees import callee_findings
from control.git.push.inspect import ModelInspection
from repository.config.callees import all_callees, callees_in, covers
from repository.model import ModelConfig


def _inspected(*callees: str) -> dict[str, ModelInspection]:
    return {"m": ModelInspection((), (), {}, {}, frozenset(callees))}


def _publisher(*scopes: str, role: Role = Role.OPERATOR) -> Principal:
    return Principal("user:kim/token:1", role, parse_scopes(scopes))


@pytest.mark.parametrize(
    ("publisher", "refused"),
    [
        (_publisher("push:m", "infer:seen"), ["hidden"]),
        (_publisher("push:m"), ["hidden", "seen"]),
        (_publisher("push:m", "infer:*"), []),
        (_publisher("operate"), []),
        (Principal("user:kim", Role.OPERATOR), []),
    ],
    ids=["some", "none", "all", "operator", "a person"],
)
def test_push_is_refused_for_callees_that_its_pusher_may_not_use(
    publisher: Principal, refused: list[str]
) -> None:
    found = callee_findings(publisher, _inspected("hidden", "seen"))
    assert [one.code for one in found] == ["E455"] * len(refused)
    for finding, name in zip(found, refused, strict=True):
        assert f"use '{name}'" in finding.message


def test_models_of_the_same_push_may_call_each_other() -> None:
    inspected = {
        "pipeline": ModelInspection((), (), {}, {}, frozenset({"resize", "other"})),
        "resize": ModelInspection((), (), {}, {}),
    }
    (found,) = callee_findings(_publisher("push:m"), inspected)
    assert "use 'other'" in found.message


def test_steps_of_an_ensemble_are_callees() -> None:
    config = ModelConfig()
    config.parameters["calls"].string_value = "a"
    for name in ("b", "b", "c@stable", ""):
        config.ensemble_scheduling.step.add(model_name=name)
    assert all_callees(config) == {"a", "b", "c@stable"}


def test_alias_of_a_callee_is_asked_for_as_its_model() -> None:
    assert not callee_findings(_publisher("infer:seen"), _inspected("seen@stable"))


def test_callees_are_separated_by_commas() -> None:
    config = ModelConfig()
    assert callees_in(config.parameters) == frozenset()
    config.parameters["calls"].string_value = " a, b ,,c"
    callees = callees_in(config.parameters)
    assert callees == {"a", "b", "c"}
    assert covers(callees, "b@stable")
    assert not covers(callees, "d@a")
