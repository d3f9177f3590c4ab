"""Aliases and routes on whole servers whose versions take their time to load: nobody is refused."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.server import identity_config
from support.yard import Yard, write_identity, yard
from support.yard_load import Load, check_load, inferring

pytestmark = pytest.mark.slow

MODEL = """
import os, time

class TritonPythonModel:
    def initialize(self, args):
        gate = os.path.join(os.environ["GATES"], args["model_version"])
        while os.path.exists(gate):
            time.sleep(0.02)
        if os.path.exists(gate + ".broken"):
            raise RuntimeError("the weights are of another model")
        self.version = args["model_version"]

    def execute(self, requests):
        import triton_python_backend_utils as pb
        found = [pb.get_input_tensor_by_name(one, "INPUT0").as_numpy() for one in requests]
        return [pb.InferenceResponse([pb.Tensor("OUTPUT0", one)]) for one in found]
"""


def gate(y: Yard, version: int) -> Path:
    """While this file exists, the version does not finish loading."""
    return Path(y.environment["GATES"]) / str(version)


def copy_in(y: Yard, version: int, closed: bool = True) -> None:
    """A version in the model's folder, whole at once; `closed`: it loads until its gate opens."""
    if closed:
        gate(y, version).touch()
    home = y.folder / "models" / "m"
    fresh = y.folder / f"fresh-{version}"
    fresh.mkdir()
    (fresh / "model.py").write_text(MODEL)
    fresh.rename(home / str(version))


@pytest.fixture
def y(tmp_path: Path) -> Iterator[Yard]:
    gates = tmp_path / "gates"
    gates.mkdir()
    home = tmp_path / "models" / "m"
    (home / "1").mkdir(parents=True)
    (home / "1" / "model.py").write_text(MODEL)
    config = identity_config("m").replace('"identity"', '"python"')
    (home / "config.pbtxt").write_text(config)
    with yard(tmp_path, {"GATES": str(gates)}, repository_poll_secs=1) as made:
        wait_state(made, 1, "READY")
        set_alias(made, 1)
        put(made, {"stable": (1, 100)})
        made.wait_for(lambda: answers(made, "numbers") == "1", "the route")
        made.wait_for(lambda: answers(made, "m@champion") == "1", "the alias")
        yield made


def wait_state(y: Yard, version: int, state: str) -> None:
    def told() -> bool:
        rows = y.api("GET", "/loads?model=m")[1]["items"]
        return any((row["version"], row["state"]) == (version, state) for row in rows)

    y.wait_for(told, f"version {version} {state}")


def set_alias(y: Yard, version: int) -> None:
    status, made = y.api("PUT", "/models/m/aliases/champion", {"version": version})
    assert status == 200, made


def put(y: Yard, arms: dict[str, tuple[int, float]], **more: Any) -> None:
    terms = [
        {"name": name, "model": "m", "version": version, "weight": weight}
        for name, (version, weight) in arms.items()
    ]
    status, made = y.api("PUT", "/routes/numbers", {"arms": terms, **more})
    assert status == 200, made


def pending(y: Yard, path: str) -> list[str]:
    return [one["reason"] for one in y.api("GET", path)[1]["pending"]]


def answers(y: Yard, name: str) -> str:
    """The version that answers by this name, "" for none."""
    body = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}
    status, text = y.server.post(f"/v2/models/{name}/infer", body)
    return str(json.loads(text)["model_version"]) if status == 200 else ""


@contextmanager
def asked(y: Yard, *names: str) -> Iterator[list[Load]]:
    with ExitStack() as stack:
        loads = [stack.enter_context(inferring(y, name)) for name in names]
        yield loads
    for load in loads:
        check_load(load)


def test_nobody_is_refused_while_a_new_target_loads(y: Yard) -> None:
    copy_in(y, 2)
    wait_state(y, 2, "LOADING")
    with asked(y, "m@champion", "numbers", "m"):
        set_alias(y, 2)
        put(y, {"stable": (1, 50), "next": (2, 50)}, mirrors=[{"arm": "next", "percent": 100}])
        put(y, {"stable": (1, 0), "next": (2, 100)})
        y.wait_for(
            lambda: "version 2 is loading" in str(pending(y, "/models/m/aliases/champion")),
            "the alias to be told as pending",
        )
        y.wait_for(
            lambda: "version 2 is loading" in str(pending(y, "/routes/numbers")), "the route"
        )
        assert "version 2 is loading" in y.cli("alias", "list", "m", "--json")
        assert "version 2 is loading" in y.cli("route", "show", "numbers")
        assert (answers(y, "m@champion"), answers(y, "numbers")) == ("1", "1")

        gate(y, 2).unlink()
        y.wait_for(lambda: answers(y, "m@champion") == "2", "the alias to move")
        y.wait_for(lambda: answers(y, "numbers") == "2", "the route to move")
        y.wait_for(lambda: pending(y, "/models/m/aliases/champion") == [], "nothing pending")
        y.wait_for(lambda: pending(y, "/routes/numbers") == [], "nothing pending")


def test_a_target_that_cannot_load_keeps_the_old_one_also_after_a_restart(y: Yard) -> None:
    copy_in(y, 2)
    wait_state(y, 2, "LOADING")
    set_alias(y, 2)
    put(y, {"stable": (2, 100)})
    gate(y, 2).with_suffix(".broken").touch()
    gate(y, 2).unlink()
    y.wait_for(
        lambda: (
            "kept at version 1: version 2 failed" in str(pending(y, "/models/m/aliases/champion"))
        ),
        "the reason",
    )
    assert (answers(y, "m@champion"), answers(y, "numbers")) == ("1", "1")

    y.again()
    assert (answers(y, "m@champion"), answers(y, "numbers")) == ("1", "1")
    assert "version 2 failed" in str(pending(y, "/models/m/aliases/champion"))
    assert "version 2 failed" in str(pending(y, "/routes/numbers"))

    set_alias(y, 1)
    put(y, {"stable": (1, 100)})
    y.wait_for(lambda: pending(y, "/models/m/aliases/champion") == [], "nothing pending")
    y.wait_for(lambda: pending(y, "/routes/numbers") == [], "nothing pending")
    y.wait_for(lambda: not list(y.state.glob("in-force*")), "nothing kept on disk for a restart")


def test_a_pending_change_outlives_a_killed_gateway_and_the_last_of_two_wins(y: Yard) -> None:
    for version in (2, 3):
        copy_in(y, version)
    wait_state(y, 2, "LOADING")
    wait_state(y, 3, "LOADING")
    with asked(y, "m@champion"):
        set_alias(y, 2)
        set_alias(y, 3)
        y.wait_for(
            lambda: "version 3 is loading" in str(pending(y, "/models/m/aliases/champion")), "3"
        )
    y.kill()
    gate(y, 2).unlink()  # the initial load waits for all
    gate(y, 3).unlink()
    y.start()
    y.wait_for(lambda: answers(y, "m@champion") == "3", "the last one")


def test_an_alias_goes_back_to_a_version_that_is_not_loaded_any_more(tmp_path: Path) -> None:
    """The version has to be loaded from its snapshot first, and the one before stays as long."""
    with yard(tmp_path) as y:
        work = y.repository()
        write_identity(work, "p", 1)
        y.commit(work, "one")
        y.push(work)
        y.wait_versions("p", 1)
        write_identity(work, "p", 2)
        y.commit(work, "two")
        y.push(work)
        y.wait_versions("p", 2)
        path = "/models/p/aliases/champion"
        assert y.api("PUT", path, {"version": 2})[0] == 200
        y.wait_for(lambda: y.server.is_ready("/v2/models/p@champion/ready"), "the alias")
        with asked(y, "p@champion"):
            for version in (1, 2, 1, 2, 1):
                assert y.api("PUT", path, {"version": version})[0] == 200
                y.wait_for(lambda: answers(y, "p@champion") == str(version), "it to move")  # noqa: B023
