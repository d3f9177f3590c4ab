"""The fleet in explicit mode: what is loaded and unloaded is said by name."""

from pathlib import Path

import pytest

from server.errors import Internal, InvalidRequest, ModelLoadFailed, NotReady, UnknownModel
from server.served_version import ServingState
from support.fleet import (
    break_version,
    eventually,
    fleet_over,
    reason,
    states,
    submit,
    write_config,
    write_onnx_model,
)
from support.server import identity_config, write_identity

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_load_and_unload_are_refused_unless_explicit(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1)
    text = "explicit model load / unload is not allowed if polling is enabled"
    for mode in ("none", "poll"):
        async with fleet_over(tmp_path, model_control_mode=mode) as fleet:
            with pytest.raises(NotReady, match=text):
                await fleet.load("m")
            with pytest.raises(NotReady, match=text):
                await fleet.unload("m", False)


async def test_explicit_loads_only_what_is_named(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1)
    write_identity(tmp_path, "n", 1)
    async with fleet_over(tmp_path, model_control_mode="explicit", load_model=("n",)) as fleet:
        assert [served.version.name for served in fleet.served()] == ["n"]
        assert [(row.name, row.state) for row in fleet.rows()] == [
            ("m", None),
            ("n", ServingState.READY),
        ]
        with pytest.raises(UnknownModel, match="'m' is not found"):
            fleet.get("m", None)
        assert fleet.ready()
        await fleet.load("m")
        assert fleet.get("m", None).version.number == 1


async def test_explicit_star_loads_everything(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1)
    write_identity(tmp_path, "n", 1)
    async with fleet_over(tmp_path, model_control_mode="explicit", load_model=("*",)) as fleet:
        assert [served.version.name for served in fleet.served()] == ["m", "n"]


async def test_explicit_load_of_an_unchanged_model_changes_nothing(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1)
    async with fleet_over(tmp_path, model_control_mode="explicit") as fleet:
        await fleet.load("m")
        served = fleet.get("m", 1)
        await fleet.load("m")
        assert fleet.get("m", 1) is served
        write_config(tmp_path, 'metric_tags { key: "a" value: "b" }')
        await fleet.load("m")
        assert fleet.get("m", 1) is not served


async def test_explicit_unload_returns_while_requests_inside_finish(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1, config=identity_config("m", delay_ms=2000))
    async with fleet_over(tmp_path, model_control_mode="explicit", load_model=("m",)) as fleet:
        reply = submit(fleet.get("m", 1))
        await fleet.unload("m", False)
        assert states(fleet) == {1: ServingState.DRAINING}
        with pytest.raises(UnknownModel, match=r"^Request for unknown model: 'm' has no available"):
            fleet.get("m", None)
        await reply.one()
        await eventually(lambda: states(fleet) == {1: ServingState.UNLOADED})
        assert reason(fleet, 1) == "unloaded"
        assert fleet.ready()
        await fleet.load("m")
        assert states(fleet) == {1: ServingState.READY}


async def test_unloading_an_unknown_model_is_not_an_error(tmp_path: Path) -> None:
    async with fleet_over(tmp_path, model_control_mode="explicit") as fleet:
        await fleet.unload("nobody", True)


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("", InvalidRequest, "^Model name cannot be empty. Please enter a valid name to deploy.$"),
        (
            " \t",
            InvalidRequest,
            "^Model name cannot be empty. Please enter a valid name to deploy.$",
        ),
        (
            "../x",
            InvalidRequest,
            "^invalid model name '../x', model name must not contain path traversal characters$",
        ),
        (
            "nobody",
            Internal,
            "^failed to load 'nobody', failed to poll from model repository: no such model",
        ),
    ],
)
async def test_explicit_load_of_nothing_says_so(
    tmp_path: Path, name: str, error: type[Exception], text: str
) -> None:
    async with fleet_over(tmp_path, model_control_mode="explicit") as fleet:
        with pytest.raises(error, match=text):
            await fleet.load(name)
        assert fleet.ready()


async def test_a_failed_explicit_load_tells_the_reason_and_may_be_repeated(tmp_path: Path) -> None:
    write_onnx_model(tmp_path, 1)
    break_version(tmp_path, 1)
    async with fleet_over(tmp_path, model_control_mode="explicit") as fleet:
        for _ in range(2):
            with pytest.raises(
                ModelLoadFailed,
                match=r"^load failed for model 'm': version 1 is at UNAVAILABLE state: Internal: ",
            ):
                await fleet.load("m")
