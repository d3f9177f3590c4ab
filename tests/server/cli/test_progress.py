"""Progress of long work: on a terminal one line that goes away, elsewhere nothing."""

import io
import sys

import pytest

from server.cli.progress import ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_one_line_that_is_erased_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = Terminal()
    monkeypatch.setattr(sys, "stderr", said)
    with ProgressLine("copying net", 4 << 20, 1 << 20, "MiB", after_s=0) as progress:
        progress.add(2 << 20)
    assert said.getvalue() == "\r\x1b[Kcopying net: 2 of 4 MiB\r\x1b[K"


def test_a_file_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    with ProgressLine("copying", after_s=0) as progress:
        progress.add()
    assert said.getvalue() == ""
