"""The last lines of the log that are kept in memory: bounded, in order, numbered."""

import logging

from control.gateways.queries import LogQuery
from server.logs.recent import MOST_CHARACTERS, MOST_LINES, RecentLines


def record(text: str, level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord("test", level, "", 0, text, None, None)


def test_lines_are_given_in_order_after_a_number() -> None:
    recent = RecentLines()
    for number in range(5):
        recent.handle(record(f"line {number}"))
    found = recent.answer(LogQuery(0, 3)).items
    assert [one.text for one in found] == ["line 2", "line 3", "line 4"]
    assert [one.text for one in recent.answer(LogQuery(found[1].number, 9)).items] == ["line 4"]
    assert recent.answer(LogQuery(found[2].number, 9)).items == ()


def test_what_is_kept_is_bounded() -> None:
    recent = RecentLines()
    for _ in range(MOST_LINES + 5):
        recent.handle(record("x" * (MOST_CHARACTERS + 5)))
    found = recent.answer(LogQuery(0, 1 << 20)).items
    assert len(found) == MOST_LINES
    assert {len(one.text) for one in found} == {MOST_CHARACTERS}
