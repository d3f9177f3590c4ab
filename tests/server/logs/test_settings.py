"""Triton's logging extension, and that no client can forge a log line."""

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from server.logs.lines import FORMS, LogSettings, escaped
from support.server import Server, running, write_identity

INITIAL = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("models")
    write_identity(repository, "echo")
    with running(repository, model_control_mode="explicit", load_model="echo") as one:
        yield one


@pytest.fixture
def client(server: Server) -> Iterator[triton.InferenceServerClient]:
    one = triton.InferenceServerClient(server.http)
    yield one
    one.update_log_settings({key: value for key, value in INITIAL.items() if key != "log_file"})
    one.close()


def refuse(client: triton.InferenceServerClient, request_id: str) -> None:
    """Send a request the server refuses; that is worth a debug line."""
    tensor = triton.InferInput("INPUT0", [1, 1], "INT8")
    tensor.set_data_from_numpy(np.array([[1]], np.int8))
    with pytest.raises(InferenceServerException):
        client.infer("echo", [tensor], request_id=request_id)


def lines_of(server: Server, word: str) -> list[str]:
    return [line for line in server.log().splitlines() if word in line]


def test_settings_begin_as_tritons(client: triton.InferenceServerClient) -> None:
    assert client.get_log_settings() == INITIAL


@pytest.mark.parametrize(
    "change",
    [
        {"log_info": False},
        {"log_info": False, "log_warning": False},
        {"log_error": False, "log_verbose_level": 1},
        {"log_format": "ISO8601"},
    ],
)
def test_change_is_answered_with_all_settings(
    client: triton.InferenceServerClient, change: dict[str, Any]
) -> None:
    assert client.update_log_settings(change) == {**INITIAL, **change}
    assert client.get_log_settings() == {**INITIAL, **change}


def test_null_leaves_a_setting_alone(client: triton.InferenceServerClient) -> None:
    client.update_log_settings({"log_info": False})
    assert client.update_log_settings({"log_info": None, "log_file": None})["log_info"] is False


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        ({"log_file": "x"}, 501, "log file location can not be updated through network protocol"),
        ({"log_error": 1}, 400, "expect boolean for 'log_error'"),
        ({"log_verbose_level": "1"}, 400, "expect int32 for 'log_verbose_level'"),
        ({"log_verbose_level": -1}, 400, "expect int32 for 'log_verbose_level'"),
        ({"log_format": 1}, 400, "expect string for 'log_format'"),
        (
            {"log_format": "xml"},
            400,
            "invalid argument for log_format, got: xml; expecting default or ISO8601",
        ),
        (
            {"log_colour": True},
            400,
            "'log_colour' is not a log setting: "
            "log_info, log_warning, log_error, log_verbose_level, log_format",
        ),
    ],
)
def test_wrong_change_is_refused_and_changes_nothing(
    server: Server, change: dict[str, Any], status: int, text: str
) -> None:
    answer = server.post("/v2/logging", {"log_info": False, **change})
    assert (answer[0], json.loads(answer[1])["error"]) == (status, text)
    assert json.loads(server.get("/v2/logging")[1]) == INITIAL


def test_level_takes_effect_with_the_next_line(
    server: Server, client: triton.InferenceServerClient
) -> None:
    client.update_log_settings({"log_info": False})
    before = len(lines_of(server, "echo 1: READY"))
    client.unload_model("echo")
    client.load_model("echo")
    assert len(lines_of(server, "echo 1: READY")) == before
    client.update_log_settings({"log_info": True})
    client.unload_model("echo")
    client.load_model("echo")
    assert len(lines_of(server, "echo 1: READY")) == before + 1


def test_verbose_level_shows_refused_requests_with_their_id(
    server: Server, client: triton.InferenceServerClient
) -> None:
    refuse(client, "quiet")
    client.update_log_settings({"log_verbose_level": 1})
    refuse(client, "loud")
    assert not lines_of(server, "quiet")
    (line,) = lines_of(server, "loud")
    assert "DEBUG" in line
    assert "is answered with 400: [request id: loud]" in line


def test_iso8601_is_tritons_form(server: Server, client: triton.InferenceServerClient) -> None:
    client.update_log_settings({"log_format": "ISO8601", "log_verbose_level": 1})
    refuse(client, "formed")
    (line,) = lines_of(server, "formed")
    head, _, message = line.partition("] ")
    assert head.split()[1:] == ["V", str(server.pid), head.split()[3]]
    assert head.split()[3].startswith("errors.py:")
    assert message.startswith('"request ')
    assert message.endswith('"')


def test_client_cannot_forge_a_line(server: Server, client: triton.InferenceServerClient) -> None:
    client.update_log_settings({"log_verbose_level": 1})
    evil = "x\r\n2026-11-21T00:00:00.000Z ERROR   server: all is lost\x1b[31m\u2028"
    status, _ = server.post("/v2/models/echo/infer", {"id": evil, "inputs": []})
    assert status == 400
    (line,) = lines_of(server, "all is lost")
    assert "x\\r\\n2026" in line
    assert "\\u001b[31m\\u2028" in line
    assert not line.startswith("2026-11-21T00:00:00.000Z")


def test_log_goes_to_the_file_it_was_given(tmp_path: Path) -> None:
    write_identity(tmp_path / "models", "echo")
    log = tmp_path / "server.log"
    with running(
        tmp_path / "models", log_file=log, log_format="json", log_level="warning"
    ) as server:
        told = json.loads(server.get("/v2/logging")[1])
        server.post("/v2/logging", {"log_info": True})
        server.stop()
    assert told == {**INITIAL, "log_file": str(log), "log_info": False}
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["level"] for line in lines} == {"INFO"}
    assert "stopping" in lines[0]["message"]


def test_log_file_that_cannot_be_opened_stops_the_server(tmp_path: Path) -> None:
    with running(tmp_path, log_file=tmp_path / "no" / "log", wait=False) as server:
        assert server.wait_exit() == 1
        assert "cannot be opened: No such file or directory" in server.log()


# without a server


def record(message: str, error: Exception | None = None) -> logging.LogRecord:
    info = (type(error), error, None) if error else None
    made = logging.LogRecord("server.x", logging.WARNING, "/a/x.py", 7, message, None, info)
    made.created, made.process = 1763690400.25, 42
    return made


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("text", '2025-11-21T02:00:00.250Z WARNING server.x: say "×"\\n'),
        ("triton", 'W1121 02:00:00.250000 42 x.py:7] "say \\"×\\"\\n"'),
        ("ISO8601", '2025-11-21T02:00:00Z W 42 x.py:7] "say \\"×\\"\\n"'),
    ],
)
def test_forms_of_a_line(form: str, line: str) -> None:
    assert FORMS[form]().format(record('say "×"\n')) == line


def test_json_line_is_one_line_whatever_is_in_it() -> None:
    text = "\n\x7f\u2028\ud800 ×"
    line = FORMS["json"]().format(record(text))
    assert line.isprintable()
    assert json.loads(line)["message"] == text


@pytest.mark.parametrize("form", ["text", "triton", "ISO8601"])
def test_traceback_cannot_be_taken_for_log_lines(form: str) -> None:
    try:
        raise ValueError("a\nE1121 02:00:00.250000 42 x.py:7] forged")
    except ValueError:
        made = record("failed")
        made.exc_info = sys.exc_info()
    first, *rest = FORMS[form]().format(made).splitlines()
    assert "failed" in first
    assert rest
    assert all(line.startswith("  | ") for line in rest)


def test_plain_text_is_not_escaped() -> None:
    assert escaped("2 × cpu – größer\\n") == "2 × cpu – größer\\n"


def test_each_level_is_switched_by_itself() -> None:
    settings = LogSettings(info=False, warning=True, error=False, verbose_level=1)
    levels = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
    assert [settings.shows(level) for level in levels] == [True, False, True, False, False]
