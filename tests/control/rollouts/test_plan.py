"""Plans in a model's config and in JSON: what may be written, and what is said of the rest."""

from pathlib import Path
from typing import Any

import pytest

from control.errors import Invalid
from control.rollouts.plan import BUCKETS, Guardrails, Mode, RolloutPlan, RolloutStep
from control.rollouts.plan_keys import KEYS, parameters_plan, parse_plan, stored_plan


def test_the_default_plan_is_the_one_that_was_agreed() -> None:
    plan = RolloutPlan()
    assert parse_plan({}) == plan
    assert plan.mirror == RolloutStep(500, 300.0, 200)
    assert [step.weight for step in plan.steps] == [100, 500, 2_500, 5_000]
    assert {(step.hold_s, step.min_sample) for step in (*plan.steps, plan.last)} == {(300.0, 2_000)}
    assert plan.last.weight == BUCKETS
    rails = plan.guardrails
    assert (rails.error_margin, rails.latency_ratio, rails.latency_windows) == (0.005, 1.25, 5)
    assert (rails.breaker_requests, rails.breaker_share, rails.memory_ratio) == (20, 0.5, 1.2)
    assert plan.rollback_window == 3


def test_a_config_that_says_nothing_of_rollouts_has_no_plan() -> None:
    assert parameters_plan({"rolloutish": "x", "execution_mode": "0"}) is None


@pytest.mark.parametrize("mode", Mode)
def test_one_word_in_the_config_is_a_plan(mode: Mode) -> None:
    assert parameters_plan({"rollout": str(mode), "other": "x"}) == RolloutPlan(mode)


def test_every_key_can_be_written_in_a_config() -> None:
    written = {
        "rollout": "progressive",
        "rollout.mirror": "2.5",
        "rollout.mirror_hold": "10s",
        "rollout.mirror_sample": "50",
        "rollout.steps": "0.01, 10,50",
        "rollout.hold": "1.5m",
        "rollout.min_sample": "300",
        "rollout.window": "500ms",
        "rollout.error_margin": "0.25",
        "rollout.latency_ratio": "1.5",
        "rollout.latency_pause_ratio": "1.2",
        "rollout.latency_windows": "2",
        "rollout.breaker_requests": "40",
        "rollout.breaker_share": "80",
        "rollout.memory_ratio": "1.1",
        "rollout.memory_mib": "512",
        "rollout.label_drift": "0.25",
        "rollout.label_sample": "900",
        "rollout.prewarm": "1h",
        "rollout.no_data": "1d",
        "rollout.undecided": "20m",
        "rollout.rollback_window": "5",
    }
    assert {f"rollout.{name}" for name in KEYS} - {"rollout.mode"} == set(written) - {"rollout"}
    assert parameters_plan(written) == RolloutPlan(
        Mode.PROGRESSIVE,
        RolloutStep(250, 10.0, 50),
        (RolloutStep(1, 90.0, 300), RolloutStep(1_000, 90.0, 300), RolloutStep(5_000, 90.0, 300)),
        RolloutStep(BUCKETS, 90.0, 300),
        Guardrails(0.5, 0.0025, 1.5, 1.2, 2, 40, 0.8, 1.1, 512, 0.25, 900),
        3_600.0,
        86_400.0,
        1_200.0,
        5,
    )


def test_a_mirror_of_nothing_is_no_mirror() -> None:
    assert parse_plan({"mirror": 0}).mirror is None
    assert RolloutPlan().without_mirror().mirror is None


def test_a_last_step_of_all_traffic_may_be_said() -> None:
    plan = parse_plan({"steps": [50, {"weight": 100, "hold": "1h", "min_sample": 7}]})
    assert [step.weight for step in plan.steps] == [5_000]
    assert plan.last == RolloutStep(BUCKETS, 3_600.0, 7)


def test_all_traffic_alone_leaves_no_steps() -> None:
    assert parse_plan({"steps": "100"}).steps == ()


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"mode": "manual", "mirror": 0, "steps": [0.01, 99.99], "hold": 0, "min_sample": 1},
        {"steps": [1, {"weight": 10, "hold": 7, "min_sample": 9}], "error_margin": 1.25},
        {"mode": "immediate", "breaker_share": 33.3, "window": 0.1},
    ],
)
def test_a_plan_read_back_from_json_is_the_same(raw: dict[str, Any]) -> None:
    plan = parse_plan(raw)
    again = parse_plan(plan.as_json())
    assert again.as_json() == plan.as_json()
    assert again.steps == plan.steps
    assert again.mirror == plan.mirror


def test_what_a_later_build_has_added_to_a_stored_plan_is_left_out() -> None:
    assert stored_plan({**RolloutPlan().as_json(), "colour": "red"}) == RolloutPlan()


WRONG = [
    ("mode", "gradual", "one of immediate, manual, progressive"),
    ("mode", None, "one of immediate, manual, progressive"),
    ("mirror", "101", "a percentage from 0"),
    ("mirror", "0.001", "at most two decimals"),
    ("mirror", -1, "a percentage from 0"),
    ("mirror", True, "a percentage from 0"),
    ("mirror", float("nan"), "a percentage from 0"),
    ("steps", "", "growing percentages"),
    ("steps", "5, 1", "growing percentages"),
    ("steps", "1, 1", "growing percentages"),
    ("steps", "0, 5", "growing percentages"),
    ("steps", [], "growing percentages"),
    ("steps", 5, "growing percentages"),
    ("steps", [{"hold": 1}], "growing percentages"),
    ("steps", [{"weight": 1, "colour": 1}], "growing percentages"),
    ("steps", [{"weight": 1, "min_sample": 0}], "growing percentages"),
    ("steps", ",".join(map(str, range(1, 60))), "growing percentages"),
    ("hold", "5 minutes", "such as"),
    ("hold", "31d", "up to 30 days"),
    ("hold", "-1", "a duration"),
    ("hold", "9" * 400, "a duration"),
    ("min_sample", "0", "a whole number of requests from 1"),
    ("min_sample", "2.5", "a whole number of requests from 1"),
    ("min_sample", 2.5, "a whole number of requests from 1"),
    ("min_sample", "٣", "a whole number of requests from 1"),
    ("min_sample", "9" * 5_000, "a whole number of requests from 1"),
    ("window", "0", "from 0.1 s"),
    ("error_margin", "101", "percentage points"),
    ("latency_ratio", "0.9", "a ratio from 1"),
    ("breaker_share", "0", "a percentage from 1"),
    ("rollback_window", "-1", "a whole number from 0"),
]


@pytest.mark.parametrize(("name", "value", "allowed"), WRONG)
def test_what_is_wrong_is_named_with_its_value_and_what_is_allowed(
    name: str, value: Any, allowed: str
) -> None:
    with pytest.raises(Invalid) as refused:
        parse_plan({name: value})
    said = str(refused.value)
    assert refused.value.field == name
    assert said.startswith(f"{name} must be ")
    assert allowed in said
    assert repr(value)[:40] in said
    assert len(said) < 400


def test_a_config_is_told_everything_that_is_wrong_in_its_own_words() -> None:
    with pytest.raises(Invalid) as refused:
        parameters_plan({"rollout": "slow", "rollout.hold": "soon", "rollout.speed": "1"})
    said = str(refused.value)
    assert "rollout must be one of immediate, manual, progressive, got 'slow'" in said
    assert "rollout.hold must be a duration" in said
    assert "there is no 'rollout.speed' in a rollout's plan; there are mode, mirror" in said


def test_every_key_is_documented_as_it_is() -> None:
    documented = (Path(__file__).parents[3] / "docs/rollouts.md").read_text()
    for name, key in KEYS.items():
        shown = "rollout" if name == "mode" else f"rollout.{name}"
        assert f"| `{shown}` | {key.means} | {key.allowed} |" in documented
