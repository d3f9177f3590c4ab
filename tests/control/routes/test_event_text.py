"""What an event changed of a route, in words."""

from typing import Any

from control.routes.event_text import change_text


def route(only: str | None = None, salt: str = "s", **weights: float) -> dict[str, Any]:
    arms = [
        {"name": name, "model": "digits", "version": 1, "alias": None, "weight": weight}
        for name, weight in weights.items()
    ]
    return {"arms": arms, "unit": "", "salt": salt, "matches": [], "mirrors": [], "only": only}


def told(before: dict[str, Any] | None, after: dict[str, Any] | None) -> str:
    return change_text({"subject": "route:r", "data": {"before": before, "after": after}})


def test_weights_are_told_before_and_after() -> None:
    said = told(route(stable=90.0, next=10.0), route(stable=50.0, next=50.0))
    assert said == "weights stable 90 → 50 %, next 10 → 50 %"


def test_an_arm_that_came_or_went_is_told() -> None:
    assert told(None, route(stable=75.0, next=25.0)) == "weights stable 75 %, next 25 %"
    came = told(route(a=100.0), route(a=90.0, b=10.0))
    assert came.startswith("weights a 100 → 90 %, b none → 10 %")
    said = told(route(stable=50.0, next=50.0), route(stable=100.0))
    assert said.startswith("weights stable 50 → 100 %, next 50 → none")


def test_the_kill_switch_and_what_else_changed_is_told() -> None:
    assert told(route(a=100.0), route("a", a=100.0)) == "kill switch: a"
    assert told(route("a", a=100.0), route(a=100.0)) == "kill switch released, was a"
    assert told(route(a=100.0), route(salt="t", a=100.0)) == "new salt"
    moved = route(a=100.0)
    moved["arms"][0]["version"] = 2
    assert told(route(a=100.0), moved) == "new targets of arms"


def test_events_about_other_things_change_no_route() -> None:
    event = {"subject": "alias:m@a", "data": {"before": None, "after": {"version": 1}}}
    assert change_text(event) == ""
    assert change_text({"subject": "route:r", "data": {"server": "s", "reason": "x"}}) == ""
