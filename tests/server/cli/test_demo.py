"""`modelyard demo`: what it writes, that it does so once, and the calls that it prints."""

from pathlib import Path

import pytest

from server.cli.demo import Demo
from server.cli.main import main
from server.settings.table import Settings

ADDRESSES = {"REST": "http://127.0.0.1:8000", "gRPC": "127.0.0.1:8001"}


def test_the_example_is_written_whole(tmp_path: Path) -> None:
    said = Demo(tmp_path / "demo").write()
    model = tmp_path / "demo" / "models" / "digits"
    assert said.startswith(f"the digits example is written: {model} ")
    assert sorted(one.name for one in model.iterdir()) == ["1", "2", "config.pbtxt", "labels.txt"]
    assert sorted(one.name for one in (tmp_path / "demo").iterdir()) == [
        "call.py",
        "models",
        "request.json",
    ]


def test_what_is_there_stays_and_what_lacks_is_written(tmp_path: Path) -> None:
    demo = Demo(tmp_path)
    demo.write()
    model = tmp_path / "models" / "digits"
    (model / "config.pbtxt").write_text("mine")
    (model / "labels.txt").unlink()
    assert demo.write().startswith("the digits example is written")
    assert (model / "labels.txt").exists()
    assert (model / "config.pbtxt").read_text() == "mine"
    assert demo.write().startswith("the digits example is there already")


def test_the_calls_name_the_open_addresses(tmp_path: Path) -> None:
    calls = Demo(tmp_path / "a b").calls(Settings(), ADDRESSES)
    assert "curl -s http://127.0.0.1:8000/v2/models/digits/infer -d '@" in calls
    assert "a b/call.py' 127.0.0.1:8001" in calls
    assert "http://127.0.0.1:8000/docs" in calls
    assert "console" in calls
    silent = Demo(tmp_path).calls(Settings(allow_admin=False), {"gRPC": "127.0.0.1:8001"})
    assert "curl" not in silent
    assert "console" not in silent


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["demo", "--into", str(tmp_path / "file" / "demo")]) == 2
    said = capsys.readouterr().err
    assert f"'{tmp_path / 'file' / 'demo'}': Not a directory; name another folder" in said
