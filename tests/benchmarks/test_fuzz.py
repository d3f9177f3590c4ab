"""The fuzzer in short: what it found once stays mended, and it does find what is wrong."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.fuzz import growth
from benchmarks.fuzz.__main__ import table
from benchmarks.fuzz.campaign import CONTROL_API, CORPORA, TARGETS, Campaign, Row
from benchmarks.fuzz.mutate import mutator
from benchmarks.fuzz.replay import load
from benchmarks.fuzz.targets import config, git, http2
from support.server import ROOT

READERS = [name for name in TARGETS if name != CONTROL_API]


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_valid_inputs_and_the_kept_corpus_break_nothing(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    kept = [file.read_bytes() for file in sorted((CORPORA / name).glob("*"))]
    for number, one in enumerate([*load(name).seeds(), *kept]):
        (folder / f"{number:05}").write_bytes(one)
    done = _run("benchmarks.fuzz.replay", name, str(folder))
    assert done.returncode == 0, done.stderr[-3000:]
    reached, lines = map(int, done.stdout.split("lines ")[1].split())
    assert reached * 6 > lines


@pytest.mark.slow
@pytest.mark.parametrize("name", ["config", "frames", "http2"])
def test_a_short_run_of_the_fuzzer_breaks_nothing(name: str, tmp_path: Path) -> None:
    """One of a format, one of bytes, one of records that are cut apart; all are replayed above."""
    words = ["--targets", name, "--inputs", "300", "--state", str(tmp_path)]
    done = _run("benchmarks.fuzz", *words)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f"| {name} | 300 |" in done.stdout


def test_an_input_that_breaks_something_ends_the_replay_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"version https://git-lfs.github.com/spec/v1\n" + b"\xff")
    script = (
        "import sys; from pathlib import Path; from benchmarks.fuzz import replay; "
        "from benchmarks.fuzz.target import Target, Wrong, plain\n"
        "def run(data):\n    if b'\\xff' in data: raise Wrong('a fault')\n"
        "replay.replay(Target('t', (), lambda: plain(run), tuple), [Path(sys.argv[1])])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "bad")],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "a fault" in done.stderr
    assert f"input: {tmp_path / 'bad'}" in done.stderr


def test_the_kept_corpus_has_the_inputs_that_reach_more_than_the_seeds(tmp_path: Path) -> None:
    corpus = tmp_path / "config" / "corpus"
    corpus.mkdir(parents=True)
    seed = config.TARGET.seeds()[0]
    inputs = {"seed": seed, "longer": b'name: "\\777"' + b" " * 9, "short": b'name: "\\777"'}
    for name, data in inputs.items():
        (corpus / name).write_bytes(data)
    assert Campaign(tmp_path, "config").minimised(tmp_path / "kept") == 1
    assert [file.name for file in (tmp_path / "kept").iterdir()] == ["short"]


def test_no_corpus_is_kept_of_inputs_that_break_something(tmp_path: Path) -> None:
    (tmp_path / "config" / "corpus" / "folder").mkdir(parents=True)
    with pytest.raises(RuntimeError, match=r"(?s)^no corpus of config was kept: .*IsADirectory"):
        Campaign(tmp_path, "config").minimised(tmp_path / "kept")


def test_records_are_put_together_as_they_were_cut() -> None:
    for target in (config.TARGET, git.TARGET, http2.TARGET):
        assert target.split is not None
        for one in target.seeds():
            assert target.join(target.split(one)) == one


def test_mutated_frames_have_lengths_that_are_right() -> None:
    mutate = mutator(http2.TARGET, lambda data, longest: (data + b"more")[:longest])
    for seed in range(200):
        data = http2.TARGET.seeds()[seed % 8]
        mutated = mutate(data, 4096, seed)
        if random.Random(seed).random() >= 0.2 and mutated.startswith(b"PRI"):
            assert sum(map(len, http2.split(mutated))) == len(mutated)


def test_growth_is_what_is_added_after_the_first_half() -> None:
    assert growth.grown([100] * 4) == 0
    assert growth.grown([10, 20, 30, 40, 50, 50, 50, 50]) == 0
    assert growth.grown([10, 20, 30, 40, 50, 60, 70, 80]) == 20


def test_the_table_names_each_target_and_what_was_wrong() -> None:
    text = table([Row("rest", 50_000, 700, 12, 30, 40, 0.5, ("status 77: a crash",))])
    assert "| rest | 50,000 | 700 | 12 | 30 of 40 (75 %) | 0.5 MiB | 1 |" in text
    assert "rest: status 77: a crash" in text


def _run(module: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
