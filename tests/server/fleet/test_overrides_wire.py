"""Loads that bring their own, as the stock clients and plain HTTP send them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from server import describe
from support.overrides import ECHO, config
from support.server import Server, running, write_identity


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("models")
    write_identity(root, "m", 1)
    with running(root, model_control_mode="explicit", allow_code_in_load_requests="true") as made:
        yield made


def client_of(server: Server, wire: str) -> Any:
    if wire == "http":
        return tritonclient.http.InferenceServerClient(server.http)
    return tritonclient.grpc.InferenceServerClient(server.grpc)


@pytest.mark.parametrize("wire", ["http", "grpc"])
def test_stock_client_loads_with_a_config_and_with_files(server: Server, wire: str) -> None:
    with client_of(server, wire) as client:
        client.load_model("m", config=config(max_batch_size=3))
        assert configured(client, "m")["max_batch_size"] == 3
        with pytest.raises(
            InferenceServerException, match=r"\[(StatusCode.INTERNAL|500)\] failed to load 'm', "
        ):
            client.load_model("m", files={"file:1/model.py": ECHO.encode()})
        client.load_model("m")
        assert configured(client, "m")["max_batch_size"] == 8
        large = {"file:1/model.py": ECHO.encode(), "file:1/weights": b"\0\xff" * 100_000}
        client.load_model("new", config=config(backend="python"), files=large)
        assert client.is_model_ready("new", "1")
        client.unload_model("new", unload_dependents=True)
        assert not client.is_model_ready("new")


@pytest.mark.parametrize("wire", ["http", "grpc"])
def test_config_as_the_client_gets_it_can_be_loaded_again(server: Server, wire: str) -> None:
    with client_of(server, wire) as client:
        client.load_model("m")
        before = configured(client, "m")
        client.load_model("m", config=json.dumps(before))
        assert configured(client, "m") == before
        assert before["version_policy"] == {"all": {}}
        assert before["input"][0]["data_type"] == "TYPE_FP32"
        assert before["input"][0]["format"] == "FORMAT_NONE"


@pytest.mark.parametrize("wire", ["http", "grpc"])
def test_load_error_tells_file_line_and_exception_in_response_and_index(
    server: Server, wire: str
) -> None:
    files = {"file:1/model.py": b"import math\nraise RuntimeError('no weights')\n"}
    with client_of(server, wire) as client:
        with pytest.raises(InferenceServerException, match=r"(?s)no weights.*model\.py\(2\)"):
            client.load_model("broken", config=config(backend="python"), files=files)
        rows = [row for row in server.index() if row["name"] == "broken"]
        assert [row["state"] for row in rows] == ["UNAVAILABLE"]
        assert "model.py(2)" in rows[0]["reason"]
        client.unload_model("broken")


def test_index_lists_what_was_copied_in_later_by_name_alone(tmp_path: Path) -> None:
    root = tmp_path / "models"
    write_identity(root, "m", 1)
    with running(root, model_control_mode="explicit", load_model="m") as server:
        write_identity(root, "later", 1)
        server.wait_for(lambda: {"name": "later"} in server.index(), "the new model to be listed")
        status, body = server.post("/v2/repository/index", {"ready": True})
        assert status == 200
        assert json.loads(body) == [{"name": "m", "version": "1", "state": "READY"}]
        server.post("/v2/repository/models/m/unload")
        gone = {"name": "m", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"}
        server.wait_for(lambda: gone in server.index(), "the model to be unloaded")


def test_named_repositories_are_refused_and_bad_bodies_named(server: Server) -> None:
    for path in ("index", "models/m/load", "models/m/unload"):
        status, body = server.post(f"/v2/repository/mine/{path}")
        assert (status, json.loads(body)["error"]) == (
            501,
            "'repository_name' specification is not supported",
        )
    for path, given, text in [
        ("index", {"ready": 1}, "Unable to parse 'ready': "),
        ("models/m/load", {"parameters": []}, "Unable to parse 'parameters': "),
        ("models/m/load", {"parameters": {"config": {}}}, "Unable to parse 'config': "),
        ("models/m/unload", {"parameters": {"unload_dependents": 1}}, "'unload_dependents'"),
    ]:
        status, body = server.post(f"/v2/repository/{path}", given)
        assert status == 500
        assert text in json.loads(body)["error"]


def configured(client: Any, name: str) -> dict[str, Any]:
    found = client.get_model_config(name)
    return dict(found) if isinstance(found, dict) else describe.to_json(found.config)
