"""Environments made from a model's requirements.txt by pip, on real servers without a network."""

import hashlib
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.environments import INFER, write_model, write_wheel
from support.server import Server, running, write_identity

BUILT = ("builds", "again")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("builds")
    wheels = place / "wheels and more"
    write_wheel(wheels, "only_here", "1.0", "import deeper\nSAID = deeper.SAID", "deeper>=2")
    write_wheel(wheels, "deeper", "2.5", "SAID = 8")
    (wheels / "source_only-1.0.tar.gz").write_bytes(b"setup.py would run")
    requirements = {
        "builds": "only-here>=1\n",
        "again": "# the same\nonly-here>=1",
        "missing": "nowhere==1",
        "newer": "only-here>=9",
        "source": "source-only",
        "hostile": "deeper\ngit+https://evil.example/x.git",
        "hashed": f"deeper==2.5 --hash=sha256:{'0' * 64}",
    }
    for name, text in requirements.items():
        folder = write_model(place / "models", name)
        (folder / "1" / "requirements.txt").write_text(text)
    return place


def started(place: Path) -> dict[str, object]:
    wheels = place / "wheels and more"
    state = place / "state"
    return {"strict_readiness": False, "state_dir": state, "environment_wheel_dir": wheels}


def index(server: Server) -> dict[str, tuple[str, str]]:
    return {row["name"]: (row.get("state", ""), row.get("reason", "")) for row in server.index()}


def all_ended(server: Server) -> bool:
    return all(state not in ("LOADING", "") for state, _ in index(server).values())


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[Server]:
    with running(place / "models", **started(place)) as one:
        one.wait_for(lambda: all_ended(one), "every load to end", 120)
        yield one


@pytest.mark.slow
@pytest.mark.parametrize("model", BUILT)
def test_a_model_runs_on_what_its_requirements_name(server: Server, model: str) -> None:
    assert index(server)[model] == ("READY", ""), index(server)[model]
    status, body = server.post(f"/v2/models/{model}/infer", INFER)
    assert status == 200, body
    said, prefix, _, own = json.loads(body)["outputs"][0]["data"]
    assert (said, own) == ("8", "No module named 'msgspec'")
    assert "/environments/" in prefix


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("missing", "no wheel of 'nowhere==1' for Python 3"),
        ("newer", "no version fits 'only-here>=9' for Python 3"),
        ("source", "packages are not built from source"),
        ("hostile", "line 2 is 'git+https://evil.example/x.git': addresses are not taken"),
        ("hashed", "a package has another hash than it should"),
    ],
)
def test_a_build_that_fails_is_the_reason_of_the_load(
    server: Server, model: str, reason: str
) -> None:
    state, text = index(server)[model]
    assert state == "UNAVAILABLE"
    assert reason in text, text
    assert text.startswith(f"model '{model}' version 1: ")


@pytest.mark.slow
def test_what_was_installed_is_locked_made_once_told_and_used_by_the_next_server(
    server: Server, place: Path
) -> None:
    (versions,) = (place / "state" / "environments").glob("*.versions")
    hashes = {
        name: hashlib.sha256((place / "wheels and more" / file).read_bytes()).hexdigest()
        for name, file in (
            ("deeper==2.5", "deeper-2.5-py3-none-any.whl"),
            ("only_here==1.0", "only_here-1.0-py3-none-any.whl"),
        )
    }
    locked = [f"{name} --hash=sha256:{one}" for name, one in hashes.items()]
    assert versions.read_text().replace("only-here", "only_here").splitlines() == locked
    kept = versions.read_text().splitlines()
    assert len(re.findall("fetching 2 of 2", server.log())) == 1
    shown = environments(place, "list")
    assert len(shown) == 1
    assert shown[0]["in_use"] is True
    assert "is used by a loaded model" in environments_refused(place, shown[0]["digest"])
    server.terminate()
    assert server.wait_exit() == 0
    with running(place / "models", **started(place)) as other:
        other.wait_for(lambda: index(other)["builds"][0] == "READY", "the model", 120)
        assert "fetching 2 of 2" not in other.log()
    python = place / "state" / "environments" / str(shown[0]["digest"]) / "env" / "bin" / "python"
    python.unlink()
    python.symlink_to("/nowhere/python")
    (place / "wheels and more" / "deeper-2.6-py3-none-any.whl").write_bytes(b"newer")
    with running(place / "models", **started(place)) as other:
        other.wait_for(lambda: index(other)["builds"][0] == "READY", "the model", 120)
        assert "fetching 2 of 2" in other.log()
    assert versions.read_text().splitlines() == kept
    environments(place, "remove", shown[0]["digest"])
    assert environments(place, "list") == []
    assert not versions.exists()


@pytest.mark.slow
def test_an_index_that_cannot_be_reached_is_the_reason_of_the_load(place: Path) -> None:
    models = place / "unreachable"
    (write_model(models, "m") / "1" / "requirements.txt").write_text("deeper")
    address = "http://name:secret@127.0.0.1:9/simple"
    with running(models, strict_readiness=False, environment_index=address) as one:
        one.wait_for(lambda: all_ended(one), "the load to end", 120)
        reason = index(one)["m"][1]
        assert "the package index cannot be reached" in reason
        assert "secret" not in one.log() + reason


@pytest.mark.slow
def test_a_build_that_waits_for_an_index_holds_up_no_load(place: Path) -> None:
    models = place / "slow"
    (write_model(models, "m") / "1" / "requirements.txt").write_text("deeper")
    write_identity(models, "other", 1)
    with socket.create_server(("127.0.0.1", 0)) as index_server:
        index_server.settimeout(60)
        index_url = f"http://127.0.0.1:{index_server.getsockname()[1]}/simple"
        options: dict[str, object] = {"environment_index": index_url, "model_load_thread_count": 1}
        options["model_control_mode"] = "explicit"
        with running(models, **options) as one, ThreadPoolExecutor() as pool:
            loading = pool.submit(one.post, "/v2/repository/models/m/load")
            connection, _ = index_server.accept()
            assert one.post("/v2/repository/models/other/load")[0] == 200
            assert not loading.done()
            connection.close()
            index_server.close()
            assert b"the environment 1/requirements.txt: " in loading.result(60)[1]


def command(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "server.cli", "environment", *words),
            *("--state-dir", str(place / "state"), "--json"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def environments(place: Path, *words: str) -> list[dict[str, object]]:
    done = command(place, *words)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout) if done.stdout else []
    return found


def environments_refused(place: Path, digest: object) -> str:
    done = command(place, "remove", str(digest))
    assert done.returncode == 1
    return done.stderr
