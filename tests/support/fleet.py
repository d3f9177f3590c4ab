"""A fleet over real folders, for tests: `async with fleet_over(root) as fleet`."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from backends.process.call_link import CallService
from repository.folders.snapshot import scan
from repository.folders.watch import WatchedRepository
from schedulers.policy.cores import CoreTokens
from schedulers.reply import Reply
from schedulers.request import InferRequest
from server.admit import admit
from server.fleet.checks.check import Checker
from server.fleet.fleet import Fleet
from server.fleet.loading import VersionLoader
from server.served_version import ServedVersion, ServingState
from server.settings.table import Settings
from support.server import identity_config

LATEST = "version_policy { latest { num_versions: 1 } }"


@asynccontextmanager
async def fleet_over(
    root: Path, start: bool = True, scripts: CallService | None = None, **settings: Any
) -> AsyncIterator[Fleet]:
    chosen = Settings(model_repository=(root,), cores=2, exit_timeout_secs=10, **settings)
    checker = Checker(chosen.check_timeout_secs)
    repository = WatchedRepository((root,), use_events=False)
    loader = VersionLoader(checker, CoreTokens(2), chosen, scripts=scripts)
    fleet = Fleet(loader, repository, chosen)
    try:
        if start:
            await fleet.start(scan((root,)))
        yield fleet
    finally:
        await fleet.close(time.monotonic_ns() + 10_000_000_000)
        await checker.close()


async def look_again(fleet: Fleet, root: Path) -> None:
    """What the pump does when the repository has changed, and wait for the result."""
    fleet.follow(scan((root,)))
    await fleet.settle()


async def eventually(true: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - polls a state that announces nothing
            await asyncio.sleep(0.005)


def submit(served: ServedVersion, rows: int = 1) -> Reply:
    tensor = np.ones((rows, 4), np.float32)
    signature, inputs = served.signature, {"INPUT0": tensor}
    count, key = admit(signature, inputs)
    now_ns = time.monotonic_ns()
    return served.scheduler.submit(
        InferRequest(signature.model, signature.version, inputs, count, key, now_ns, "1")
    )


def states(fleet: Fleet) -> dict[int | None, ServingState | None]:
    return {row.version: row.state for row in fleet.rows()}


def reason(fleet: Fleet, version: int | None) -> str:
    return next(row.reason for row in fleet.rows() if row.version == version)


def numbers(fleet: Fleet) -> list[int]:
    return [served.version.number for served in fleet.served()]


def write_config(root: Path, extra: str = "", policy: str = "version_policy { all {} }") -> None:
    text = identity_config("m").replace("version_policy { all {} }", policy)
    (root / "m" / "config.pbtxt").write_text(text + extra)


def break_version(root: Path, number: int) -> None:
    """Put a file there that no runtime can read."""
    folder = root / "m" / str(number)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(b"not a model")


def states_of(fleet: Fleet, name: str) -> dict[int | None, ServingState | None]:
    return {row.version: row.state for row in fleet.rows() if row.name == name}


def write_onnx_model(root: Path, number: int, policy: str = "version_policy { all {} }") -> None:
    """An ONNX identity, FP32 [4] in batches; all versions share the config."""
    folder = root / "m" / str(number)
    folder.mkdir(parents=True, exist_ok=True)
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "XY"]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["X"], ["Y"])], "g", value[:1], value[1:]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    (root / "m" / "config.pbtxt").write_text(f'name: "m"\nbackend: "onnxruntime"\n{policy}\n')
