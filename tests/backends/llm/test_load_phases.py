"""What a load's phases are told as."""

import os
import time

from backends.llm.load_phases import LoadPhase, PhaseClock, in_words, process_start_s


def test_phases_follow_each_other_without_a_gap() -> None:
    began_s = time.monotonic()
    clock = PhaseClock(began_s)
    clock.end("weights", 5)
    clock.end("cache")
    ended_s = time.monotonic()

    assert [(one.name, one.bytes) for one in clock.phases] == [("weights", 5), ("cache", 0)]
    assert all(one.seconds >= 0 for one in clock.phases)
    assert sum(one.seconds for one in clock.phases) <= ended_s - began_s


def test_a_phase_tells_its_bytes_where_it_has_some() -> None:
    phases = [LoadPhase("start", 1.254), LoadPhase("weights", 0.7, 988_000_000)]

    assert in_words(phases) == "start 1.25 s, weights 0.70 s (988 MB)"


def test_a_child_has_started_between_its_fork_and_now() -> None:
    before_s = time.monotonic()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, repr(process_start_s()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    started_s = float(os.read(read, 100))
    os.close(read)
    os.close(write)

    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    assert before_s - tick_s <= started_s <= time.monotonic() + tick_s
