"""Python models that run in environments of their own, on a real server."""

import io
import json
import os
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.environments import (
    INFER,
    environment_path,
    make_environment,
    packed,
    write_model,
)
from support.server import Server, running

OF_ANOTHER_VERSION = """#!/bin/sh
shift 3
code="$1"
shift
exec {python} -c '
import sys
sys.implementation.cache_tag = "cpython-39"
exec(sys.argv.pop(1))
' "$code" "$@"
"""
OWN = "$$TRITON_MODEL_DIRECTORY"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("environments")


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[Server]:
    environment = make_environment(
        place / "with space",
        only_here="SAID = 7",
        msgspec="raise ImportError('its own')",
    )
    models = place / "models"
    write_model(models, "folder", environment_path(environment))
    packed(environment, write_model(models, "packed", environment_path(f"{OWN}/e.tgz")) / "e.tgz")
    bare = make_environment(place / "bare", with_numpy=False)
    write_model(models, "bare", environment_path(bare))
    write_model(models, "lost", environment_path(place / "nowhere"))
    write_model(models, "relative", environment_path("somewhere"))
    write_model(models, "empty", environment_path(models))
    other = make_environment(place / "other")
    (other / "bin" / "python").unlink()
    (other / "bin" / "python").write_text(
        OF_ANOTHER_VERSION.format(python=os.path.realpath(environment / "bin" / "python"))
    )
    (other / "bin" / "python").chmod(0o755)
    write_model(models, "other", environment_path(other))
    hostile = write_model(models, "hostile", environment_path(f"{OWN}/e.tar"))
    with tarfile.open(hostile / "e.tar", "w") as opened:
        member = tarfile.TarInfo("../../../outside")
        member.size = 3
        opened.addfile(member, io.BytesIO(b"out"))
    state = place / "state"
    with running(models, strict_readiness=False, state_dir=state) as started:
        started.wait_for(lambda: all_ended(started), "every load to end")
        yield started


def index(server: Server) -> dict[str, tuple[str, str]]:
    return {row["name"]: (row.get("state", ""), row.get("reason", "")) for row in server.index()}


def all_ended(server: Server) -> bool:
    return all(state not in ("LOADING", "") for state, _ in index(server).values())


@pytest.mark.parametrize("model", ["folder", "packed"])
def test_a_model_runs_on_the_environment_that_its_config_names(
    server: Server, place: Path, model: str
) -> None:
    assert index(server)[model] == ("READY", ""), index(server)[model]
    status, body = server.post(f"/v2/models/{model}/infer", INFER)
    assert status == 200, body
    said, prefix, has_ours, own = json.loads(body)["outputs"][0]["data"]
    assert said == "7"
    kept = place / "state" / "environments"
    assert Path(prefix).is_relative_to(place / "with space" if model == "folder" else kept)
    assert (has_ours, own) == ("False", "its own")


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("bare", "has no numpy that can be imported"),
        ("lost", "and nothing is there"),
        ("relative", "it must be an absolute path, or begin with $$TRITON_MODEL_DIRECTORY/"),
        ("empty", "has no program bin/python; it must be a conda or virtual environment"),
        ("other", "make the environment with the server's version of Python"),
        ("hostile", "the environment e.tar: it cannot be unpacked: OutsideDestinationError"),
    ],
)
def test_an_environment_that_cannot_be_used_is_the_reason_of_the_load(
    server: Server, model: str, reason: str
) -> None:
    state, text = index(server)[model]
    assert state == "UNAVAILABLE"
    assert reason in text
    assert text.startswith(f"model '{model}' version 1: ")


def test_a_worker_of_an_environment_that_dies_is_started_in_it_again(server: Server) -> None:
    (pid,) = server.children("worker folder_0")
    os.kill(pid, signal.SIGKILL)
    server.wait_for(lambda: server.children("worker folder_0") not in ([pid], []), "another worker")
    server.wait_for(lambda: server.get("/v2/models/folder/ready")[0] == 200, "the model")
    status, body = server.post("/v2/models/folder/infer", INFER)
    assert status == 200, body
