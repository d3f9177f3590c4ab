"""The first version that a rollback offers is one that came before."""

from typing import Any

from admin_ui.pages.rollback import in_order


def target(version: int, rolled_back: bool = False) -> dict[str, Any]:
    return {"version": version, "rolled_back": rolled_back, "ready": 1}


def test_newer_versions_come_after_older_ones_and_rolled_back_ones_last() -> None:
    targets = [target(6), target(5, rolled_back=True), target(3), target(2, rolled_back=True)]
    order = [one["version"] for one in in_order(targets, serving=4)]
    assert order == [3, 6, 2, 5]


def test_where_none_serves_the_order_stays() -> None:
    assert [one["version"] for one in in_order([target(2), target(1)], None)] == [2, 1]
