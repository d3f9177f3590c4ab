"""The page of a model beside a real gateway."""

from pathlib import Path

import pytest

from support.admin import PASSWORD, Api
from support.console import Person
from support.server import identity_config
from support.yard import Yard, yard


class _Door(Api):
    def __init__(self, port: int) -> None:
        self.port = port


def viewer(running: Yard) -> Person:
    running.api("POST", "/users", {"name": "vera", "role": "viewer", "password": PASSWORD})
    one = Person(_Door(running.admin_port))
    assert one.log_in("vera").status == 303
    return one


@pytest.mark.slow
def test_a_folders_model_shows_what_the_gateway_has_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "echo"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(identity_config("echo"))
    with yard(tmp_path) as running:
        vera = viewer(running)
        assert "/models/echo/versions/1" in vera.get("/models/echo").text
        page = vera.get("/models/echo/versions/1").text
        _, found = running.api("GET", "/instances/echo")
        _, none = running.api("GET", "/instances/other")
    assert "<ins>instance_group {</ins>" in page
    assert '<td class="mono">config.pbtxt</td>' in page
    assert '<th scope="row">INPUT0</th>' in page
    (row,) = found["items"]
    assert "instance_group {" in row["config"]
    assert [one["name"] for one in row["inputs"]] == ["INPUT0"]
    assert none == {"items": []}
