"""The command line's side of the control API, against servers that do not answer."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from control.access.views import MeView
from server.cli.commands.client import ApiClient, ServerAddress, ServerUnreachable

SILENT = "a server listens at {} and has not responded within 0.05 s: its control process is busy"


@pytest.fixture(params=[socket.AF_UNIX, socket.AF_INET])
def silent(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerAddress]:
    """Where connections are accepted by the kernel and nobody reads, as of a stopped process."""
    with socket.socket(request.param) as listening:
        unix = request.param == socket.AF_UNIX
        listening.bind(str(tmp_path / "api.sock") if unix else ("127.0.0.1", 0))
        listening.listen()
        if unix:
            yield ServerAddress(tmp_path / "api.sock")
        else:
            yield ServerAddress(Path(), f"http://127.0.0.1:{listening.getsockname()[1]}")


def test_a_server_that_listens_and_does_not_answer_is_told_from_none_with_the_deadline(
    silent: ServerAddress,
) -> None:
    with pytest.raises(ServerUnreachable) as told:
        ApiClient(silent, answer_s=0.05).get("/me", MeView)
    assert str(told.value).startswith(SILENT.format(silent.url or silent.socket_path))


def test_a_person_who_waits_is_told_for_how_long(
    silent: ServerAddress, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ServerUnreachable):
        ApiClient(silent, answer_s=0.2, notice_s=0.01).get("/me", MeView)
    where = silent.url or silent.socket_path
    said = f"modelyard: {where} has not answered for 0.01 s; waiting for 0.2 s in all\n"
    assert capsys.readouterr().err == said


def test_a_server_that_ends_the_connection_without_an_answer_is_told_from_none(
    tmp_path: Path,
) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "api.sock"))
        listening.listen()

        def end_one() -> None:
            connection, _ = listening.accept()
            connection.recv(65536)
            connection.close()

        ending = threading.Thread(target=end_one)
        ending.start()
        with pytest.raises(ServerUnreachable, match="ended the connection without an answer"):
            ApiClient(ServerAddress(tmp_path / "api.sock")).get("/me", MeView)
        ending.join()


def test_nobody_listening_is_no_server(tmp_path: Path) -> None:
    with pytest.raises(ServerUnreachable, match="no server answers at"):
        ApiClient(ServerAddress(tmp_path / "api.sock")).get("/me", MeView)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"principal": 1}', b"\xff"])
def test_an_answer_of_another_shape_is_none_of_a_control_api(tmp_path: Path, body: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "api.sock"))
        listening.listen()

        def answer_one() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
                connection.sendall(head + body)

        answering = threading.Thread(target=answer_one)
        answering.start()
        with pytest.raises(ServerUnreachable, match="something else than a control API"):
            ApiClient(ServerAddress(tmp_path / "api.sock")).get("/me", MeView)
        answering.join()
