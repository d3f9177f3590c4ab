"""Clients are told why, and not where this server keeps things."""

from pathlib import Path

import pytest

from server.fleet.client_paths import ClientPaths
from support.server import running, write_identity


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/srv/models/m/config.pbtxt:3:1 E102 x", "m/config.pbtxt:3:1 E102 x"),
        (
            "Load model from /srv/models/m/1/model.onnx failed",
            "Load model from m/1/model.onnx failed",
        ),
        ("'/srv/models' and '/srv/more'", "'models' and '/srv/more'"),
        ("/state/overrides/12-ab/tmp1/m/1/model.py", "m/1/model.py"),
        ("/state/store/snapshots/0a1b/m/1/model.py", "m/1/model.py"),
        ("https://srv/models/m and x/srv/models/m", "https://srv/models/m and x/srv/models/m"),
        ("models/m/1 of mymodels/m/1", "m/1 of mymodels/m/1"),
    ],
)
def test_own_folders_are_taken_out_of_a_reason(text: str, shown: str) -> None:
    folders = (Path("/srv/models"), Path("models"), Path("/state"), Path("."), Path("/"))
    assert ClientPaths(folders)(text) == shown


@pytest.mark.slow
def test_no_answer_names_a_folder_of_the_server(tmp_path: Path) -> None:
    root = tmp_path / "models"
    write_identity(root, "good", 1)
    write_identity(root, "bad", 1, config="nam: 1\n")
    write_identity(root, "onnx", 1, config='platform: "onnxruntime_onnx"\n')
    (root / "onnx" / "1" / "model.onnx").write_bytes(b"this is no onnx file")
    (root / "link").symlink_to(tmp_path)
    with running(root, model_control_mode="explicit", load_model="*", wait=False) as server:
        server.wait_for(lambda: server.is_ready("/v2/models/good/ready"), "the good one")
        answers = [str(server.index())]
        for name in ("bad", "onnx", "link", "nobody"):
            status, text = server.post(f"/v2/repository/models/{name}/load", {})
            assert status >= 400
            answers += [
                text.decode(),
                server.post(f"/v2/models/{name}/infer", {"inputs": []})[1].decode(),
            ]
        body = {"parameters": {"config": '{"backend": "nowhere"}'}}
        answers.append(server.post("/v2/repository/models/bad/load", body)[1].decode())
        said = "\n".join(answers)
        assert "load 'bad', failed to poll from model repository: bad/config.pbtxt:1:1" in said
        assert str(tmp_path) not in said
