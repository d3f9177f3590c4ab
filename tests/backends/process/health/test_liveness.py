"""When a worker counts as hung: times in, a verdict out."""

from backends.limits import ExecutionLimit
from backends.process.health.liveness import Activity, Liveness

IDLE = Activity(loading=False)


def executing(progress: int = 0) -> Activity:
    return Activity(loading=False, executing=True, progress=progress)


def looked(
    liveness: Liveness, activity: Activity, secs: float, *, stopped: bool = False, answers: bool
) -> str:
    """The first verdict while so many seconds of looks pass."""
    passed = 0.0
    while passed < secs:
        if answers:
            liveness.answered()
        verdict = liveness.look(
            liveness.interval_secs, activity, stopped=stopped, reader_behind=False
        )
        if verdict:
            return verdict
        passed += liveness.interval_secs
    return ""


def test_an_execution_without_progress_is_ended_at_its_limit() -> None:
    liveness = Liveness(ExecutionLimit(60.0), 15.0)
    assert looked(liveness, executing(), 50.0, answers=True) == ""
    verdict = looked(liveness, executing(), 30.0, answers=True)
    assert verdict == (
        "executed for more than 60 s without progress and was killed "
        "(the limit is --model-execute-timeout-secs=60; 0 for none)"
    )


def test_every_response_starts_the_limit_anew() -> None:
    liveness = Liveness(ExecutionLimit(60.0), 15.0)
    for progress in range(10):
        assert looked(liveness, executing(progress), 50.0, answers=True) == ""


def test_without_a_limit_an_execution_may_hold_the_gil_as_long_as_it_likes() -> None:
    liveness = Liveness(ExecutionLimit(0.0), 15.0)
    assert looked(liveness, executing(), 100_000.0, answers=False) == ""


def test_a_minute_with_the_gil_held_is_no_hang_and_half_the_limit_is() -> None:
    liveness = Liveness(ExecutionLimit(600.0), 15.0)
    assert looked(liveness, executing(), 100.0, answers=False) == ""
    assert "no heartbeat for 300 s" in looked(liveness, executing(), 300.0, answers=False)


def test_one_stopped_by_a_signal_is_ended_soon_also_while_it_executes_or_loads() -> None:
    for activity in (executing(), Activity(loading=True), IDLE):
        liveness = Liveness(ExecutionLimit(0.0), 15.0)
        assert "stopped by a signal" in looked(
            liveness, activity, 30.0, stopped=True, answers=False
        )


def test_loading_may_hold_the_gil() -> None:
    liveness = Liveness(ExecutionLimit(1.0), 15.0)
    assert looked(liveness, Activity(loading=True), 1000.0, answers=False) == ""


def test_a_client_that_does_not_read_is_not_the_models_fault() -> None:
    liveness = Liveness(ExecutionLimit(1.0), 15.0)
    for _ in range(1000):
        liveness.answered()
        assert not liveness.look(1.0, executing(), stopped=False, reader_behind=True)


def test_no_worker_is_blamed_for_the_time_the_server_itself_was_stopped() -> None:
    liveness = Liveness(ExecutionLimit(60.0), 15.0)
    assert not liveness.look(100_000.0, executing(), stopped=False, reader_behind=False)
    assert not liveness.look(100_000.0, IDLE, stopped=False, reader_behind=False)
