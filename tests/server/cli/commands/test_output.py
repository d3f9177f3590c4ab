"""What commands print: whole for programs, cut for a terminal."""

import argparse
import io
from typing import NamedTuple

import pytest

from server.cli.commands import table
from server.cli.commands.client import ApiClient
from server.cli.commands.command import CliCommand
from server.cli.commands.output import ListOutput

REASON = "server 0a1b2c3d: kept at version 1: version 2 failed: " + "no such file " * 20


class Pending(NamedTuple):
    alias: str
    why: str


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(into: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> str:
    def listed(given: argparse.Namespace, api: ApiClient) -> ListOutput:
        return ListOutput([Pending("champion", REASON)], {"alias": "alias", "pending": "why"})

    monkeypatch.setattr("sys.stdout", into)
    assert (
        table.run(CliCommand("x list", "list", listed, alone=True), argparse.Namespace(json=False))
        == 0
    )
    return into.getvalue()


def test_a_list_into_a_pipe_or_a_file_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    assert REASON.strip() in printed(io.StringIO(), monkeypatch)


def test_a_list_on_a_terminal_has_no_cell_wider_than_60(monkeypatch: pytest.MonkeyPatch) -> None:
    line = printed(Terminal(), monkeypatch).splitlines()[1]
    assert line == f"champion  {REASON[:59]}…"
