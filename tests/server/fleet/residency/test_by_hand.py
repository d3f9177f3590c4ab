"""What operators pin, evict and load, and what they are told where that is not done."""

from pathlib import Path

import pytest

from control.gateways.queries import ResidencyQuery
from schedulers.request import Sequence as SequenceMembership
from support.fleet import eventually, fleet_over
from support.on_demand import ON_DEMAND, resident, send, write

pytestmark = pytest.mark.anyio

SEQUENCES = "sequence_batching { direct {} } max_batch_size: 4\n"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_version_that_is_loading_is_not_said_to_be_evicted(tmp_path: Path) -> None:
    write(tmp_path, "a")
    async with fleet_over(tmp_path, **ON_DEMAND) as fleet:
        fleet.residency.answer(ResidencyQuery("a", "load"))
        found = fleet.residency.answer(ResidencyQuery("a", "evict"))
        assert (found.problem, found.evicted) == ("a version 1 is loading", ())
        await eventually(lambda: resident(fleet) == ["a"])
        found = fleet.residency.answer(ResidencyQuery("a", "evict"))
        assert (found.problem, found.evicted) == ("", (1,))
        assert fleet.residency.answer(ResidencyQuery("a", "evict")).problem == ""


async def test_versions_that_were_evicted_are_named_beside_those_that_stay(tmp_path: Path) -> None:
    for version in (1, 2):
        write(tmp_path, "a", SEQUENCES, version)
    async with fleet_over(tmp_path, **ON_DEMAND) as fleet:
        for version, last in ((1, True), (2, False)):
            member = SequenceMembership(7, True, last)
            await send(fleet.get("a", version), sequence=member).one()
        held = ["", "has 1 live sequence"]
        await eventually(lambda: [row.hold for row in fleet.residency.rows()] == held)
        found = fleet.residency.answer(ResidencyQuery("a", "evict"))
        assert found.evicted == (1,)
        assert found.problem == "a version 1 is evicted; a version 2 has 1 live sequence"


async def test_a_pin_that_cannot_be_kept_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    root, state = tmp_path / "models", tmp_path / "state"
    state.mkdir()
    write(root, "a")
    async with fleet_over(root, state_dir=state, **ON_DEMAND) as fleet:
        assert fleet.residency.answer(ResidencyQuery("a", "pin")).problem == ""
        (state / "pins.tmp").mkdir()
        refused = fleet.residency.answer(ResidencyQuery("a", "unpin")).problem
        assert "'a' is still pinned, which could not be kept across a restart: " in refused
        assert "pins.tmp" in refused
        assert fleet.residency.pinned("a")
        (state / "pins.tmp").rmdir()
        assert fleet.residency.answer(ResidencyQuery("a", "unpin")).problem == ""
        (state / "pins.tmp").mkdir()
        assert "'a' is not pinned" in fleet.residency.answer(ResidencyQuery("a", "pin")).problem
        assert not fleet.residency.pinned("a")


async def test_a_pin_of_a_model_that_has_gone_can_be_removed(tmp_path: Path) -> None:
    root, state = tmp_path / "models", tmp_path / "state"
    state.mkdir()
    write(root, "a")
    (state / "pins.json").write_text('["gone"]')
    async with fleet_over(root, state_dir=state, **ON_DEMAND) as fleet:
        assert fleet.residency.answer(ResidencyQuery("gone", "unpin")).problem == ""
        assert not fleet.residency.pinned("gone")
        assert (state / "pins.json").read_text() == "[]"
        again = fleet.residency.answer(ResidencyQuery("gone", "unpin")).problem
        assert "no version of 'gone' loads on demand on this server" in again
