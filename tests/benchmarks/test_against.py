"""What is said of two samples, and what they are taken of; of the times nothing is asserted."""

import random
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from benchmarks.against import language
from benchmarks.against.command import main
from benchmarks.against.requests import ROUTES, UNIT, routed, routing
from benchmarks.against.revision import checked_out
from benchmarks.against.turns import Measurement, Schedule, Subject, measured
from benchmarks.against.verdict import (
    CPU_US,
    TOKENS_PER_S,
    Criterion,
    Interval,
    RatioRow,
    ratio_of_medians,
    table,
    verdict,
)
from benchmarks.llm_model import SIZES
from benchmarks.models import IDENTITY_CONFIG, identity_problem
from benchmarks.peers import modelyard
from benchmarks.peers.seam import Peer
from benchmarks.process import Process
from benchmarks.shots import Shot, answer_size, grpc_shot, json_shot


def drawn(middle: float, seed: int) -> list[float]:
    dice = random.Random(seed)
    return [middle * dice.uniform(0.9, 1.1) for _ in range(27)]


def test_the_same_twice_is_a_ratio_of_one_within_its_interval() -> None:
    ratio, lower, upper = ratio_of_medians(drawn(50.0, 1), drawn(50.0, 2))
    assert lower < 1.0 < upper
    assert 0.95 < ratio < 1.05


def test_what_costs_a_fifth_more_is_told_from_what_does_not() -> None:
    ratio, lower, upper = ratio_of_medians(drawn(60.0, 1), drawn(50.0, 2))
    assert 1.1 < lower < ratio < upper < 1.3


def test_one_slow_round_does_not_move_the_ratio() -> None:
    here = [50.0] * 8 + [500.0]
    assert ratio_of_medians(here, [50.0] * 9).ratio == 1.0


@pytest.mark.parametrize(
    ("criterion", "lower", "upper", "said"),
    [
        (CPU_US, 0.90, 1.03, "met"),
        (CPU_US, 1.03, 1.10, "met?"),
        (CPU_US, 1.031, 1.10, "MISSED"),
        (TOKENS_PER_S, 0.98, 1.10, "met"),
        (TOKENS_PER_S, 0.90, 0.98, "met?"),
        (TOKENS_PER_S, 0.90, 0.979, "MISSED"),
    ],
)
def test_a_limit_is_missed_where_the_whole_interval_is_worse(
    criterion: Criterion, lower: float, upper: float, said: str
) -> None:
    assert verdict(criterion, Interval(1.0, lower, upper)) == said


def test_the_table_has_a_line_and_a_verdict_for_each_kind() -> None:
    text = table(
        "abc",
        [
            RatioRow("json", CPU_US, 9, 46.24, 45.6, Interval(1.0123, 0.99, 1.1)),
            RatioRow("llm", TOKENS_PER_S, 9, 300.0, 400.0, Interval(0.75, 0.7, 0.8)),
        ],
    )
    assert "| here | at abc |" in text
    assert "| json | CPU-µs | 9 | 46.2 | 45.6 | 1.012 | 0.990 to 1.100 | ≤ 1.03 | met? |" in text
    assert (
        "| llm | tokens/s | 9 | 300.0 | 400.0 | 0.750 | 0.700 to 0.800 | ≥ 0.98 | MISSED |" in text
    )


def test_every_start_has_both_trees_and_every_round_asks_both(tmp_path: Path) -> None:
    begun: list[Path] = []

    @contextmanager
    def started(repository: Path, cache: Path, tree: Path) -> Iterator[Peer]:
        assert repository == cache / "models"
        begun.append(tree)
        yield Peer(tree.name, Process(tree.name, 0, 0.0), "", "")

    measurements = tuple(
        Measurement(
            name, CPU_US, lambda peer, duration_s: duration_s * (2 if peer.name == "here" else 1)
        )
        for name in ("one", "two")
    )
    subject = Subject(lambda cache: cache / "models", started, measurements)
    trees = (tmp_path / "here", tmp_path / "there")
    one, two = measured(trees, tmp_path, [subject], Schedule(rounds=5, starts=2, duration_s=3.0))
    assert begun == [*trees, *trees]
    assert (one.name, two.name) == ("one", "two")
    assert (one.rounds, one.here, one.there, one.interval.ratio) == (6, 6.0, 3.0, 2.0)


def test_a_revision_is_checked_out_and_set_up_in_a_folder_of_its_own(tmp_path: Path) -> None:
    root, cache = tmp_path / "root", tmp_path / "cache"
    root.mkdir()
    commit(root, "#!/bin/sh\necho first >set-up\n")
    commit(root, "#!/bin/sh\necho second >set-up\n")
    tree = checked_out("HEAD~1", cache, root)
    assert tree.parent == cache / "against"
    assert (tree / "set-up").read_text() == "first\n"
    assert checked_out("HEAD~1", cache, root) == tree


def commit(root: Path, dev: str) -> None:
    (root / "dev").write_text(dev)
    (root / "dev").chmod(0o755)
    own = ("-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "core.hooksPath=/dev/null")
    for words in (("init", "-q"), ("add", "dev"), (*own, "commit", "-q", "-m", "dev")):
        subprocess.run(["git", *words], cwd=root, timeout=60, check=True)


def test_a_revision_that_does_not_exist_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        checked_out("no-such-revision", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_subject_that_does_not_exist_is_refused_with_those_that_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["HEAD", "--only", "rest,soap"])
    assert "'soap' is not one of rest, grpc, routing, llm" in capsys.readouterr().err


@pytest.mark.slow
def test_routes_are_made_by_command_and_answer_over_both_wires(tmp_path: Path) -> None:
    (tmp_path / "models" / "identity" / "1").mkdir(parents=True)
    (tmp_path / "models" / "identity" / "config.pbtxt").write_text(IDENTITY_CONFIG)
    with routing(tmp_path / "models", tmp_path / "cache", None) as peer:
        arms = {}
        for name in ROUTES:
            problem = identity_problem(name)
            assert answer_size(routed(grpc_shot(problem)), peer.grpc) > 0
            arms[name] = {arm(routed(json_shot(problem)), peer.rest) for _ in range(40)}
    assert len(arms["sticky"]) == 1
    assert arms["drawn"] == {"identity@1;stable", "identity@1;candidate"}
    assert not any((tmp_path / "cache" / "state").iterdir())


def arm(shot: Shot, address: str) -> str:
    """Which arm of a route answered it, as the answer says."""
    assert UNIT in shot.headers
    host, _, port = address.partition(":")
    with closing(HTTPConnection(host, int(port), timeout=30)) as connection:
        headers = dict(header.split(": ", 1) for header in shot.headers)
        connection.request("POST", shot.path, shot.body, headers)
        return connection.getresponse().headers["x-modelyard-route"]


@pytest.mark.slow
def test_tokens_are_counted_of_streams_from_a_served_model(tmp_path: Path) -> None:
    repository = language.prepare(tmp_path, "1m", "torch-bf16", threads=1)
    measurement = language.streams("torch-bf16", SIZES["1m"]["vocab_size"], 3)
    with modelyard.started(repository, tmp_path) as peer:
        assert measurement.measure(peer, 0.0) > 0
