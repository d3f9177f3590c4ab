import pytest

from repository.process.backoff import Backoff


def test_restarts_wait_longer_each_time_and_forget_after_a_healthy_minute() -> None:
    backoff = Backoff()
    assert [backoff.after(0) for _ in range(9)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10]
    assert backoff.after(61) == pytest.approx(0.1)
