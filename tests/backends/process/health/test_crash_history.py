"""Deaths of workers that follow one another closely are one streak; a late one begins another."""

from backends.process.health.crash_history import APART_SECS, CrashHistory, joined


def test_deaths_close_to_each_other_add_up_and_keep_when_it_began() -> None:
    told = CrashHistory().then(100.0, "exited with status 1").then(100.0 + APART_SECS, "was killed")
    assert told == CrashHistory(2, 100.0, 100.0 + APART_SECS, "was killed")


def test_a_death_long_after_the_one_before_begins_anew() -> None:
    late = 101.0 + APART_SECS
    assert CrashHistory(7, 90.0, 100.0, "").then(late, "was killed") == CrashHistory(
        1, late, late, "was killed"
    )


def test_the_deaths_of_several_workers_are_told_as_one() -> None:
    workers = [CrashHistory(3, 50.0, 90.0, "b"), CrashHistory(), CrashHistory(2, 60.0, 95.0, "c")]
    assert joined(workers) == CrashHistory(5, 50.0, 95.0, "c")
    assert joined([CrashHistory()]) == CrashHistory()
