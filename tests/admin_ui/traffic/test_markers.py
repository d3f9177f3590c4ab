"""Changes are marked where they happened, one mark for what came together."""

from typing import Any

from admin_ui.traffic.markers import MOST, is_about, markers_of


def event(second: int, kind: str, subject: str, **data: Any) -> dict[str, Any]:
    at = f"1970-01-01T00:{second // 60:02}:{second % 60:02}.000Z"
    return {"at": at, "kind": kind, "subject": subject, "data": data}


def test_what_falls_into_one_point_is_one_mark_and_the_oldest_is_a() -> None:
    arms = [{"name": "candidate", "weight": 50.0, "model": "m", "version": 2, "alias": None}]
    found = markers_of(
        [
            event(125, "model.deployed", "model:digits"),
            event(61, "route.changed", "route:digits", before={"arms": []}, after={"arms": arms}),
            event(62, "alias.moved", "alias:digits@champion", version=2),
        ],
        0, 600, 10,
    )  # fmt: skip
    assert [(one.at, one.letter, len(one.words)) for one in found] == [(61, "A", 2), (125, "B", 1)]
    assert "weights candidate none → 50 %" in found[0].words[0]
    assert found[0].to == "/models/digits"


def test_what_was_before_or_says_only_how_a_change_went_about_is_not_marked() -> None:
    before = event(5, "model.deployed", "model:digits")
    pending = event(65, "route.pending", "route:digits", server="s", reason="wait")
    assert markers_of([before, pending], 60, 600, 10) == []


def test_the_newest_are_marked_when_there_are_many() -> None:
    many = [event(number * 10, "model.deployed", "model:digits") for number in range(MOST + 5)]
    found = markers_of(many, 0, 600, 10)
    assert len(found) == MOST
    assert found[0].at == 50


def loaded(second: int, state: str, version: int = 1, **data: Any) -> dict[str, Any]:
    facts = {"server": "srv", "version": version, "state": state, **data}
    return event(second, "load.changed", "model:digits", **facts)


def test_loads_and_reloads_of_versions_are_marked_by_how_they_ended() -> None:
    found = markers_of(
        [
            loaded(60, "LOADING"),
            loaded(61, "READY"),
            event(120, "load.reloaded", "model:digits", server="srv", version=1, state="READY"),
            loaded(180, "READY", reason="serving what was loaded before: E300"),
            loaded(240, "FAILED", version=0, reason="E100"),
        ],
        0, 600, 10,
    )  # fmt: skip
    assert [(one.at, one.bad) for one in found] == [(61, False), (120, False), (180, True)]
    assert list(found[0].words) == ["digits version 1 is ready on server srv"]
    assert list(found[1].words) == ["digits version 1 was loaded again on server srv"]


def test_loads_of_many_neither_fill_a_mark_nor_push_out_deployments() -> None:
    many = [
        loaded(10 * second, "READY", version) for second in range(60) for version in range(1, 10)
    ]
    deployed = event(5, "model.deployed", "model:digits")
    found = markers_of([*many, deployed], 0, 600, 10)
    assert (found[0].at, len(found)) == (0, MOST)
    assert found[1].words[-1] == "and 1 more"


def test_a_rollout_is_of_its_own_route_only() -> None:
    assert is_about(event(1, "rollout.step", "rollout:01", name="digits"), "digits")
    assert not is_about(event(1, "rollout.step", "rollout:01", name="other"), "digits")
    assert is_about(event(1, "model.deployed", "model:digits"), "digits")
