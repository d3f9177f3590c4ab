"""Range headers, read."""

import pytest

from control.git.ranges import range_of


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("bytes=0-", (0, None)),
        ("bytes=4-", (4, None)),
        ("bytes=0-0", (0, 1)),
        ("bytes=2-99", (2, 100)),
        ("bytes=-3", (7, None)),
        ("bytes=-99", (0, None)),
        ("bytes=-0", (10, None)),
        ("bytes=10-", (10, None)),
    ],
)
def test_one_range_is_understood(said: str, wanted: tuple[int, int | None]) -> None:
    assert range_of(said, 10) == wanted


@pytest.mark.parametrize(
    "said",
    [None, "", "bytes", "bytes=", "bytes=-", "bytes=5-2", "bytes=0-1,3-4", "lines=1-2", "bytes=a-"],
)
def test_what_is_no_single_range_asks_for_everything(said: str | None) -> None:
    assert range_of(said, 10) is None


def test_an_empty_object_has_no_ranges() -> None:
    assert range_of("bytes=0-", 0) is None
