"""Who waits for a lock gets it in turn."""

import threading
from concurrent.futures import ThreadPoolExecutor

from control.sql.writer_queue import WriterQueue


def waiting(turns: WriterQueue) -> int:
    return len(turns._waiting)


def until_waiting(turns: WriterQueue, count: int) -> None:
    seen = threading.Event()
    for _ in range(6000):
        if waiting(turns) == count:
            return
        seen.wait(0.01)
    raise AssertionError(f"{waiting(turns)} wait instead of {count}")


def test_those_who_wait_come_in_the_order_in_which_they_asked() -> None:
    turns, came = WriterQueue(), []

    def take(name: int) -> None:
        assert turns.acquire(60)
        came.append(name)
        turns.release()

    assert turns.acquire(0)
    with ThreadPoolExecutor(5) as pool:
        for name in range(5):
            pool.submit(take, name)
            until_waiting(turns, name + 1)
        turns.release()
    assert came == [0, 1, 2, 3, 4]
    assert turns.acquire(0)


def test_who_has_just_released_it_comes_behind_those_who_wait() -> None:
    turns, came = WriterQueue(), []

    def take() -> None:
        assert turns.acquire(60)
        came.append("other")
        turns.release()

    assert turns.acquire(0)
    other = threading.Thread(target=take)
    other.start()
    until_waiting(turns, 1)
    turns.release()
    assert turns.acquire(60)
    came.append("first")
    other.join(60)
    assert came == ["other", "first"]


def test_who_gives_up_waiting_is_not_given_it() -> None:
    turns = WriterQueue()
    assert turns.acquire(0)
    assert not turns.acquire(0.01)
    assert waiting(turns) == 0
    turns.release()
    assert turns.acquire(0)
