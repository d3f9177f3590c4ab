"""Windows wait until they are stored, bounded, and are sent again."""

from control.series.points import SeriesPoint, SeriesSubject, SeriesWindow, SubjectPoint
from server.series import backlog
from server.series.backlog import MOST_WINDOWS, SeriesBacklog

ROW = SubjectPoint(SeriesSubject("version", "digits", 1), SeriesPoint(1))


def window(at: int, rows: int = 1) -> SeriesWindow:
    return SeriesWindow("a", "b", at, (ROW,) * rows)


def sent(waiting: SeriesBacklog, everything: bool = False) -> list[int]:
    return [one.at for one in waiting.messages(everything)]


def test_a_window_is_sent_once_and_again_when_all_that_is_not_stored_is_due() -> None:
    waiting = SeriesBacklog()
    waiting.add(window(10))
    waiting.add(window(20))
    assert sent(waiting) == [10, 20]
    assert sent(waiting) == []
    waiting.stored(10, "b")
    waiting.add(window(30))
    assert sent(waiting) == [30]
    assert sent(waiting, everything=True) == [20, 30]


def test_a_quarter_of_an_hour_is_kept_and_what_is_lost_is_counted() -> None:
    waiting = SeriesBacklog()
    for number in range(MOST_WINDOWS + 5):
        waiting.add(window(10 * number))
    assert len(waiting) == MOST_WINDOWS
    assert waiting.lost == 5
    assert sent(waiting)[0] == 50


def test_many_rows_shorten_what_is_kept_to_one_window_at_least(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(backlog, "MOST_ROWS", 10)
    waiting = SeriesBacklog()
    for at in (10, 20, 30):
        waiting.add(window(at, rows=6))
    assert sent(waiting) == [30]
    waiting.add(window(40, rows=60))
    assert sent(waiting) == [40]


def test_an_answer_to_what_is_not_waiting_changes_nothing() -> None:
    waiting = SeriesBacklog()
    waiting.add(window(10))
    waiting.stored(20, "")
    assert sent(waiting) == [10]


def test_two_gateways_windows_of_the_same_seconds_wait_beside_each_other() -> None:
    waiting = SeriesBacklog()
    for boot in ("before", "after"):
        waiting.add(SeriesWindow("a", boot, 10, (ROW,)))
    waiting.stored(10, "after")
    assert list(waiting.waiting()) == [(10, "before")]
