"""The ring keeps the last records, whatever their texts, and finds them again."""

from collections.abc import Sequence

import numpy as np
import pytest

from server.history.ring import MOST_RECORDS, NOT_EXECUTED, TEXT_BYTES, RequestRing


def add(
    ring: RequestRing,
    numbers: int | Sequence[int],
    client_id: str = "",
    error: str = "",
    **changes: int,
) -> None:
    number = np.atleast_1d(np.array(numbers, "i8"))
    usual = {"part": 0, "target": 3, "queue_us": 7, "compute_us": 9, "outcome": 1}
    usual |= {"instance": NOT_EXECUTED, "arrived_ns": 0} | changes
    columns = {field: np.full(len(number), value, "i8") for field, value in usual.items()}
    ring.add({"number": number, **columns}, [client_id] * len(number), [error] * len(number))


def numbers(ring: RequestRing) -> list[int]:
    return [ring.record(int(place)).number for place in ring.places()]


def test_a_record_is_read_as_it_was_added() -> None:
    ring = RequestRing(4)
    add(ring, 1 << 60, "mine", "no such input", part=8, arrived_ns=1 << 62)
    record = ring.record(int(ring.places()[0]))
    assert record == (1 << 60, 8, 3, 1 << 62, 7, 9, 1, NOT_EXECUTED, "mine", "no such input")


def test_the_newest_come_first_and_the_oldest_give_way() -> None:
    ring = RequestRing(4)
    for number in range(11):
        add(ring, number)
        assert numbers(ring) == list(range(number, max(-1, number - 4), -1))
    assert len(ring) == 4


def test_texts_are_bounded_whoever_sends_long_ones() -> None:
    each = 100 + 20 + 2 * TEXT_BYTES
    ring = RequestRing(50, 5 * each)
    for number in range(200):
        add(ring, number, "x" * 100, "y" * 20)
        assert ring.text_bytes <= 5 * each
    assert numbers(ring) == [199, 198, 197, 196, 195]
    for number in range(200, 240):
        add(ring, number)
    assert (len(ring), ring.text_bytes) == (45, 5 * each)
    for number in range(240, 260):
        add(ring, number)
    assert (len(ring), ring.text_bytes) == (50, 0)


def test_a_duration_beyond_what_is_kept_is_cut_to_it() -> None:
    ring = RequestRing(1)
    add(ring, 1, queue_us=1 << 40)
    assert ring.record(0).queue_us == (1 << 32) - 1


def test_those_of_a_client_are_all_found() -> None:
    ring = RequestRing(5)
    for number in range(7):
        add(ring, number, f"mine-{number % 2}")
    found = ring.of_client("mine-0", ring.places())
    assert [ring.record(int(place)).number for place in found] == [6, 4, 2]


@pytest.mark.parametrize("text", ["", "x" * 128])
def test_a_full_ring_takes_less_than_32_mib(text: str) -> None:
    ring = RequestRing()
    for number in range(0, MOST_RECORDS + 10_000, 500):
        add(ring, range(number, number + 500), text, text)
    assert len(ring._buffer) + 16 * len(ring) + ring.text_bytes <= 32 * 2**20
    assert len(ring) == MOST_RECORDS if not text else len(ring) > 50_000


@pytest.mark.parametrize("text", ["", "x" * 30])
def test_many_at_once_are_kept_as_if_added_one_by_one(text: str) -> None:
    one_by_one, at_once = (RequestRing(10, 7 * (30 + TEXT_BYTES)) for _ in range(2))
    number = 0
    for count in (3, 4, 1, 6, 10, 2, 9):
        some = range(number, number + count)
        add(at_once, some, text if count != 6 else "")
        for number in some:
            add(one_by_one, number, text if count != 6 else "")
        number += 1
        assert numbers(at_once) == numbers(one_by_one)
        assert at_once.text_bytes == one_by_one.text_bytes
        assert [at_once.record(int(place)) for place in at_once.places()] == [
            one_by_one.record(int(place)) for place in one_by_one.places()
        ]
