"""The soak: what it takes for wrong and for growth, what it draws, and a short one for real."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.soak.__main__ import main
from benchmarks.soak.latency import bucket_of, quantile_ms
from benchmarks.soak.plot import svg
from benchmarks.soak.report import text
from benchmarks.soak.rows import Minute, Run, Sample, Weight, line_of, runs_of
from benchmarks.soak.verdict import growth, problems

GATEWAY = Weight(7, "gateway", 200_000, 300_000, 50, 20)
END = {"status": 0, "problem": ""}


def samples(*rss: int) -> list[Sample]:
    """One every 100 s."""
    return [
        Sample(100.0 * number, (replace(GATEWAY, rss=one),), shm=2)
        for number, one in enumerate(rss)
    ]


def minute(number: int = 1, **outcomes: int) -> Minute:
    return Minute(number, 60.0 * number, {"chat": outcomes}, {"chat": {"20": 3}}, {"chat": 0.5})


def test_a_run_whose_answers_are_right_and_whose_memory_is_flat_is_as_promised() -> None:
    run = Run({}, [minute(right=5, refused=2, cancelled=1)], samples(*[200_000] * 8), end=END)
    assert problems(run) == []


@pytest.mark.parametrize("outcome", ["wrong", "lost", "hung"])
def test_one_answer_that_is_not_as_it_must_be_is_told(outcome: str) -> None:
    assert problems(Run({}, [minute(right=5, **{outcome: 1})], end=END)) == [f"chat: 1 {outcome}"]


def test_growth_is_between_the_second_and_the_last_quarter() -> None:
    (memory,) = (one for one in growth(samples(1, 1, 5, 5, 9, 9, 700, 700)) if one.what == "memory")
    assert (memory.role, memory.before, memory.after) == ("gateway", 5, 700)


def test_memory_that_grows_past_the_bound_is_told_and_that_of_the_start_is_not() -> None:
    mib = 1024
    late = Run({}, samples=samples(*[200 * mib] * 6, 230 * mib, 230 * mib), end=END)
    early = Run({}, samples=samples(100 * mib, 100 * mib, *[230 * mib] * 6), end=END)
    assert problems(late) == ["memory of gateway grew from 200.0 MiB to 230.0 MiB"]
    assert problems(early) == []


def test_processes_that_come_and_go_are_counted_and_not_weighed() -> None:
    rows = samples(*[200_000] * 20)
    rows[3] = replace(rows[3], processes=(GATEWAY, Weight(9, "git", 9, 9, 9, 1)))
    assert {one.role for one in growth(rows)} == {"gateway", "all"}


def test_an_interrupted_run_and_a_failed_change_are_told() -> None:
    run = Run({}, events=[{"kind": "push", "failed": "refused"}])
    assert problems(run) == ["push: refused", "the run has no end: it was interrupted, or goes on"]


def test_what_is_written_is_read_again_but_for_a_line_that_was_cut_off() -> None:
    rows = [("start", {"time": "now"}), ("minute", minute(right=1)), ("sample", samples(5)[0])]
    lines = [line_of(kind, row) for kind, row in rows]
    (run,) = runs_of([*lines, '{"row": "minute", "num'])
    assert (run.start, run.minutes, run.samples) == ({"time": "now"}, [minute(right=1)], samples(5))


@pytest.mark.parametrize("seconds", [0.0001, 0.0005, 0.01, 0.7, 25.0])
def test_a_bucket_ends_at_most_a_fifth_above_its_latencies(seconds: float) -> None:
    end = quantile_ms({bucket_of(seconds): 4}, 0.5)
    assert max(seconds * 1000, 0.5) <= end * 1.0001 <= max(seconds * 1000, 0.5) * 1.19


def test_a_quantile_is_that_of_the_counts() -> None:
    counts = {bucket_of(0.01): 99, bucket_of(4.0): 1}
    assert quantile_ms(counts, 0.99) < 12
    assert quantile_ms(counts, 1.0) >= 4000


def test_the_plot_has_every_role_and_outcome_and_nothing_outside_its_frame() -> None:
    run = Run({}, [minute(1, right=90), minute(2, right=80, lost=1)], samples(*[200_000] * 8))
    drawn = ElementTree.fromstring(svg([run]))
    texts = {one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert {"gateway", "right: 170", "wrong, lost, hung: 1", "p99", "minutes"} <= texts
    _, _, width, height = map(float, drawn.attrib["viewBox"].split())
    for line in drawn.iter("{http://www.w3.org/2000/svg}polyline"):
        for point in line.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height


def test_nothing_measured_is_no_success(tmp_path: Path) -> None:
    assert main(["--report", "--state", str(tmp_path / "none.jsonl")]) == 1


@pytest.mark.slow
def test_a_short_soak_is_right_and_shows_its_changes(tmp_path: Path) -> None:
    state, plot = tmp_path / "soak.jsonl", tmp_path / "soak.svg"
    words = ["--minutes", "0.33", "--rate", "20", "--state", str(state), "--plot", str(plot)]
    status = main(words)
    (run,) = runs_of(state.read_text().splitlines())
    assert (status, problems(run)) == (0, []), text([run])
    asked = {kind for one in run.minutes for kind in one.outcomes}
    assert {"REST JSON", "gRPC unary", "ModelStreamInfer", "chat stream", "shared memory"} <= asked
    assert {one["kind"] for one in run.events} >= {"push", "loaded"}
    assert plot.read_text().startswith("<svg")
