"""`modelyard status` and `modelyard logs` of a real server."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import preloaded
from support.server import ROOT, Server, running, write_identity

Run = tuple[int, str, str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("status")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    repository = folder / "models"
    repository.mkdir()
    write_identity(repository, "good")
    (repository / "bad" / "1").mkdir(parents=True)
    (repository / "bad" / "1" / "model.cbm").write_text("x")
    with running(repository, wait=False, allow_admin=True, state_dir=folder / "state") as one:
        one.wait_for(lambda: "admin  " in one.log(), "the control API")
        one.wait_for(
            lambda: '"FAILED"' in modelyard(folder, "status", "--json")[1], "the recorded states"
        )
        yield one


def command(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "server.cli", *words, "--state-dir", str(folder / "state")]


def modelyard(folder: Path, *words: str) -> Run:
    ran = preloaded.run((*words, "--state-dir", str(folder / "state")), {**os.environ}, ROOT)
    return ran.returncode, ran.stdout, ran.stderr


def test_it_shows_what_serves_what_fails_and_why(server: Server, folder: Path) -> None:
    body = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 16], "data": [0] * 16}]}
    assert server.post("/v2/models/good/infer", body)[0] == 200

    status, out, err = modelyard(folder, "status")

    assert (status, err) == (0, "")
    assert "1 of 2 versions ready" in out.splitlines()[0]
    rows = {line.split()[0]: line.split() for line in out.splitlines()[3:5]}
    assert rows["good"][2:4] == ["READY", "identity"]
    assert rows["good"][5:] == ["1", "0", "0"]
    assert rows["bad"][2] == "FAILED"
    assert "model.cbm is a CatBoost model, not supported yet; convert it: " in out
    assert out.count("model.cbm is a CatBoost") == 1
    assert "\x1b" not in out


def test_its_json_has_the_same(server: Server, folder: Path) -> None:
    found = json.loads(modelyard(folder, "status", "--json")[1])
    states = {one["model"]: one["state"] for one in found["versions"]}
    assert states == {"bad": "FAILED", "good": "READY"}


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_a_terminal_has_colours_unless_they_are_refused(
    server: Server, folder: Path, no_color: str, coloured: bool
) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "NO_COLOR": no_color, "TERM": "xterm"}
    subprocess.run(
        command(folder, "status"), cwd=ROOT, stdout=theirs, env=environment, check=True, timeout=60
    )
    os.close(theirs)
    said = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert ("\x1b[32mREADY" in said) == coloured


def test_watching_goes_on_until_it_is_interrupted(server: Server, folder: Path) -> None:
    watch = command(folder, "status", "--watch", "0.1", "--json")
    process = subprocess.Popen(watch, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    looks = [json.loads(process.stdout.readline()) for _ in range(2)]
    process.send_signal(signal.SIGINT)
    process.stdout.close()
    assert process.wait(30) == 0
    assert looks[0]["server"] == looks[1]["server"]


def test_the_log_is_printed_and_followed(server: Server, folder: Path) -> None:
    status, out, err = modelyard(folder, "logs", "--lines", "50")
    assert (status, err) == (0, "")
    assert "good 1: READY" in out
    assert out.splitlines() == [one for one in out.splitlines() if one in server.log()]

    follow = command(folder, "logs", "--follow", "--lines", "1", "--json")
    process = subprocess.Popen(follow, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    (folder / "models" / "late" / "1").mkdir(parents=True)
    (folder / "models" / "late" / "1" / "model.gguf").write_text("x")
    texts = (json.loads(line)["text"] for line in process.stdout)
    assert any("late 1: FAILED" in text and "GGUF" in text for text in texts)
    process.send_signal(signal.SIGINT)
    process.stdout.close()
    assert process.wait(30) == 0


def test_without_a_server_it_says_how_to_start_one(tmp_path: Path) -> None:
    for word in ("status", "logs"):
        status, out, err = modelyard(tmp_path, word)
        assert (status, out) == (1, "")
        assert "start one with `modelyard serve`" in err
