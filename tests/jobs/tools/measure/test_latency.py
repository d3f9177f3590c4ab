"""Latency of two runs by turns, also where the process's clock hardly moves."""

import resource
import subprocess
import sys

from jobs.tools.measure.latency import CpuTime, measure_in_turns, typical_ms

LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_CPU, (100, 100))  # from here on the clock moves by ticks
from jobs.tools.measure.latency import measure_in_turns
pair = measure_in_turns(lambda: sum(range(20_000)), lambda: sum(range(2_000)), 1)
print(pair.after_ms > 0, pair.speedup > 3)
"""


def test_a_short_run_has_a_latency_under_a_limit_on_cpu_time() -> None:
    run = subprocess.run(
        [sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout.split() == ["True", "True"]
    assert resource.getrlimit(resource.RLIMIT_CPU)[0] == resource.RLIM_INFINITY


def test_work_of_other_threads_is_counted_by_the_process_s_clock() -> None:
    times = [CpuTime(1_000, 4_000_000), CpuTime(1_000, 0)]
    assert typical_ms(times) == 2.0


def test_work_of_the_calling_thread_is_counted_by_its_own_clock() -> None:
    times = [CpuTime(1_000_000, 0), CpuTime(1_100_000, 4_000_000), CpuTime(1_200_000, 0)]
    assert typical_ms(times) == 1.1


def test_nothing_at_all_takes_a_nanosecond() -> None:
    assert typical_ms([CpuTime(0, 0)]) == 1e-6
    assert measure_in_turns(lambda: None, lambda: None, 1).rounds == 30
