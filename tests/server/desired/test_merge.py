"""Folders and pushed models become one Snapshot."""

from pathlib import Path

import pytest

from control.desired import DesiredModel, DesiredState, Pin
from repository.model import ModelConfig, ModelFolder, ModelVersion, Snapshot
from repository.snapshots.sealed_models import Sealed
from server.desired.merge import merge

STORE = Path("store/snapshots")


def model(name: str, *numbers: int, home: str = "folder") -> ModelFolder:
    place = Path(home, name)
    versions = tuple(
        ModelVersion(name, n, place, place / str(n), ModelConfig(name=name), f"{home}{n}")
        for n in numbers
    )
    return ModelFolder(name, place.parent, place, ModelConfig(name=name), versions, home, home)


def seen(*folders: ModelFolder, **problems: str) -> Snapshot:
    return Snapshot(1, {one.name: one for one in folders}, problems)


def store(**sealed: Sealed):  # type: ignore[no-untyped-def]
    return lambda digest: sealed.get(digest, f"snapshot {digest} is not in the store")


def test_a_pushed_model_stands_beside_those_in_folders() -> None:
    desired = DesiredState(7, models=(DesiredModel("pushed", "s1", "vision"),))
    made = merge(seen(model("local", 1)), desired, store(s1=model("pushed", 1, home="s1")))
    assert set(made.models) == {"local", "pushed"}
    assert made.delivered == {"pushed"}
    assert made.desired == 7


def test_a_snapshot_that_is_not_in_the_store_is_the_models_problem_alone() -> None:
    desired = DesiredState(1, models=(DesiredModel("pushed", "s1"), DesiredModel("other", "s2")))
    made = merge(seen(), desired, store(s2=model("other", 1, home="s2")))
    assert "not in the store" in made.problems["pushed"]
    assert set(made.models) == {"other"}


def test_a_name_that_is_pushed_and_lies_in_a_folder_is_a_problem() -> None:
    desired = DesiredState(1, models=(DesiredModel("m", "s1", "vision"),))
    made = merge(seen(model("m", 1)), desired, store(s1=model("m", 1, home="s1")))
    assert "git repository 'vision'" in made.problems["m"]
    assert not made.models


def test_a_model_that_was_undeployed_stays_for_the_versions_that_something_still_leads_to() -> None:
    wanted = DesiredModel("m", pins=(Pin(1, "old", "route r"),))
    made = merge(seen(), DesiredState(1, models=(wanted,)), store(old=model("m", 1, 2, home="old")))
    found = made.models["m"]
    assert found.only_pinned
    assert [pin.version.number for pin in found.pins] == [1]
    assert made.delivered == {"m"}


def test_a_pin_keeps_a_version_that_the_deployed_snapshot_no_longer_has() -> None:
    wanted = DesiredModel("m", "new", pins=(Pin(1, "old", "alias champion"),))
    sealed = store(new=model("m", 2, home="new"), old=model("m", 1, home="old"))
    (pin,) = merge(seen(), DesiredState(1, models=(wanted,)), sealed).models["m"].pins
    assert (pin.version.path, pin.core_digest) == (Path("old/m/1"), "old")
    assert pin.by == "alias champion"


def test_a_pin_of_a_version_that_is_deployed_is_served_as_deployed() -> None:
    wanted = DesiredModel("m", "new", pins=(Pin(1, "old", "alias champion"),))
    sealed = store(new=model("m", 1, 2, home="new"), old=model("m", 1, home="old"))
    (pin,) = merge(seen(), DesiredState(1, models=(wanted,)), sealed).models["m"].pins
    assert pin.version.path == Path("new/m/1")


def test_two_who_refer_to_one_version_are_both_named() -> None:
    pins = (Pin(1, "", "alias champion"), Pin(1, "", "route front"))
    made = merge(
        seen(model("m", 1)), DesiredState(1, models=(DesiredModel("m", pins=pins),)), store()
    )
    (pin,) = made.models["m"].pins
    assert pin.by == "alias champion, route front"


def test_a_pin_on_a_folder_model_that_lost_the_version_pins_nothing() -> None:
    wanted = DesiredModel("m", pins=(Pin(9, "", "alias champion"),))
    made = merge(seen(model("m", 1)), DesiredState(1, models=(wanted,)), store())
    assert made.models["m"].pins == ()


@pytest.mark.parametrize("where", ["models", "problems"])
def test_a_pin_on_a_model_that_is_gone_changes_nothing(where: str) -> None:
    wanted = DesiredModel("gone", pins=(Pin(1, "", "alias champion"),))
    before = seen(model("m", 1)) if where == "models" else seen(gone="broken")
    made = merge(before, DesiredState(1, models=(wanted,)), store())
    assert (made.models, made.problems) == (before.models, before.problems)


def test_the_repositorys_permission_for_the_network_reaches_every_version_and_is_a_change() -> None:
    folders = store(s1=model("m", 2, home="s1"), s0=model("m", 1, home="s0"))
    pins = (Pin(1, "s0", "alias old"),)
    before = merge(seen(), DesiredState(1, models=(DesiredModel("m", "s1", pins=pins),)), folders)
    desired = DesiredState(2, models=(DesiredModel("m", "s1", pins=pins, network=True),))
    allowed = merge(seen(), desired, folders).models["m"]
    assert [one.network_allowed for one in before.models["m"].versions] == [False]
    assert [one.network_allowed for one in allowed.versions] == [True]
    assert [one.version.network_allowed for one in allowed.pins] == [True]
    assert allowed.core_digest != before.models["m"].core_digest
