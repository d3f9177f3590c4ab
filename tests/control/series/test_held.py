"""Which windows of a server may wait to be written."""

import pytest

from control.series.held import HOLD_S, LAG_US, HeldWindows, is_idle
from control.series.points import (
    LanguagePoint,
    SequencePoint,
    SeriesPoint,
    SeriesSubject,
    SeriesWindow,
    StepPoint,
    SubjectPoint,
)

VERSION = SeriesSubject("version", "digits", 1)
REST = SeriesPoint(instances=2, memory_bytes=10**8, sequences=SequencePoint(live=1, oldest_ms=10))


def window(point: SeriesPoint, at: int = 0) -> SeriesWindow:
    return SeriesWindow("a", "boot", at, (SubjectPoint(VERSION, point),))


@pytest.mark.parametrize(
    "point",
    [
        SeriesPoint(succeeded=1, instances=2, memory_bytes=10**8),
        SeriesPoint(failed={"OTHER": 1}, instances=2, memory_bytes=10**8),
        SeriesPoint(batches=1, instances=2, memory_bytes=10**8),
        SeriesPoint(pending=1, instances=2, memory_bytes=10**8),
        SeriesPoint(instances=1, memory_bytes=10**8),
        SeriesPoint(instances=2, memory_bytes=2 * 10**8),
        SeriesPoint(instances=2, memory_bytes=10**8, loop_lag_us=LAG_US),
        SeriesPoint(instances=2, memory_bytes=10**8, language=LanguagePoint(generated_tokens=1)),
        SeriesPoint(instances=2, memory_bytes=10**8, sequences=SequencePoint(live=1, expired=1)),
        SeriesPoint(instances=2, memory_bytes=10**8, sequences=SequencePoint(live=2)),
        SeriesPoint(instances=2, memory_bytes=10**8, steps={"1:digits": StepPoint(skipped=1)}),
    ],
)
def test_a_window_in_which_something_happened_or_changed_is_not_idle(point: SeriesPoint) -> None:
    assert not is_idle(window(point), window(REST))


def test_a_window_is_idle_while_only_ages_and_a_little_memory_change() -> None:
    older = SequencePoint(live=1, oldest_ms=10_010)
    later = SeriesPoint(instances=2, memory_bytes=10**8 + 4096, loop_lag_us=900, sequences=older)
    assert is_idle(window(later), window(REST))
    assert not is_idle(SeriesWindow("a", "boot", 10, ()), window(REST)), "a version has gone"


def test_the_window_after_one_with_requests_is_written_with_it() -> None:
    held = HeldWindows()
    assert not held.hold(window(SeriesPoint(succeeded=3, instances=2)))
    assert not held.hold(window(SeriesPoint(instances=2), 10))
    assert held.hold(window(SeriesPoint(instances=2), 20))
    assert held.hold(window(SeriesPoint(instances=2), 20)), "sent again"
    assert len(held.waiting()) == 1


def test_the_oldest_waits_no_longer_than_its_time() -> None:
    held = HeldWindows()
    offered = [held.hold(window(REST, at)) for at in range(0, HOLD_S + 20, 10)]
    assert offered == [False, *[True] * (HOLD_S // 10), False]
    waiting = held.waiting()
    held.written(waiting[:-1])
    assert held.waiting() == waiting[-1:]
