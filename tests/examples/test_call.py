"""The examples' callers and README commands against a real server with every example."""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.peers import modelyard
from benchmarks.peers.seam import Peer
from examples.gru_text.text import TEXT

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CURLED = [
    "digits",
    "digits_torch",
    "simple",
    "shout",
    "identity",
    "ragged_embedding",
    "sure_digits",
]
BOTH_PROTOCOLS = ["REST", "gRPC"]


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with modelyard.started(repository, tmp_path_factory.mktemp("server")) as peer:
        yield peer


@pytest.mark.parametrize(("version", "answers"), [("", "2"), ("1", "1")])
def test_digits_reads_most_images_right_over_both_protocols(
    server: Peer, version: str, answers: str
) -> None:
    said = _call(server, "digits", *(["--version", version] if version else []))
    assert re.findall(r"(\w+): answered by version (\d)", said) == [
        (protocol, answers) for protocol in BOTH_PROTOCOLS
    ]
    right = [int(count) for count in re.findall(r"(\d+) of 64 right", said)]
    assert len(right) == 2
    assert min(right) >= (50 if version == "1" else 62)


def test_the_exported_program_reads_as_well(server: Peer) -> None:
    right = re.findall(r"(\d+) of 64 right", _call(server, "digits_torch"))
    assert [int(count) >= 62 for count in right] == [True, True]


def test_simple_adds_and_subtracts_over_both_protocols(server: Peer) -> None:
    said = _call(server, "simple")
    assert _protocols(said) == BOTH_PROTOCOLS
    assert said.count("15 + 1 = 16    15 - 1 = 14") == 2


def test_shout_answers_in_capitals_over_both_protocols(server: Peer) -> None:
    said = _call(server, "shout", "größe", "")
    assert _protocols(said) == BOTH_PROTOCOLS
    assert said.count("größe -> GRÖSSE (5 characters)") == 2
    assert said.count(" ->  (0 characters)") == 2


def test_identity_gives_back_what_it_got_over_both_protocols(server: Peer) -> None:
    assert _protocols(_call(server, "identity")) == BOTH_PROTOCOLS


def test_running_sum_keeps_a_sum_for_each_of_two_sequences(server: Peer) -> None:
    said = _call(server, "running_sum", "4", "2", "0", "1")
    assert re.findall(r"makes (-?\d+)", said) == ["4", "-4", "6", "-6", "6", "-6", "7", "-7"]


def test_the_network_goes_on_from_two_texts_side_by_side_over_every_protocol(server: Peer) -> None:
    said = _call(server, "gru_text", "the owl", "the bear", "--characters", "40")
    found = re.findall(r"^(\w+): (the \w+)\|(.*)$", said, re.M)
    protocols = [*BOTH_PROTOCOLS, "stream"]
    assert [(protocol, text) for protocol, text, _ in found] == [
        (protocol, text) for protocol in protocols for text in ("the owl", "the bear")
    ]
    for _, text, more in found:
        assert len(more) == 40
        assert text + more in TEXT


def test_texts_of_different_lengths_are_embedded_at_once_over_both_protocols(server: Peer) -> None:
    said = _call(server, "ragged_embedding")
    assert re.findall(r"(\w+): answered 4 texts of 7, 12, 4 and 16 tokens", said) == BOTH_PROTOCOLS
    near = [float(one) for one in re.findall(r"^  ([-.\d ]{5})  ", said, re.M)]
    assert len(near) == 12
    for pairs in (near[:6], near[6:]):
        cats, *unlike, shares = pairs
        assert min(cats, shares) > max(unlike)


def test_narrator_calls_two_models_and_does_without_the_third(server: Peer) -> None:
    said = _call(server, "narrator").splitlines()
    found = [
        re.fullmatch(r"(REST|gRPC): (\d): IT IS (\w+)\. \(start the .*\)", one) for one in said
    ]
    assert len(found) == 4
    assert all(found)
    assert said[0].split(": ")[1:] == said[1].split(": ")[1:]


def test_the_dear_network_is_asked_for_few_digits_and_most_are_right(server: Peer) -> None:
    said = _call(server, "sure_digits")
    alone = {
        name: float(share) for name, share in re.findall(r"(\w+) network alone: ([\d.]+)%", said)
    }
    found = re.findall(r"(\w+): answered ([\d.]+)% right, dear for ([\d.]+)%", said)
    assert [protocol for protocol, _, _ in found] == [*BOTH_PROTOCOLS, "stream"]
    for _, right, dear in found:
        assert alone["cheap"] + 5 < float(right) <= alone["dear"] + 0.5
        assert 20 < float(dear) < 60


def test_photographs_of_12_megapixels_get_labels_by_every_way_in(server: Peer) -> None:
    said = _call(server, "photo_labels").splitlines()
    ways = ["REST, a body", "REST, a tensor", "gRPC, a tensor", "gRPC, a stream"]
    best = [(name, way) for name in ("flower", "temple") for way in ways]
    assert len(said) == len(best)
    for line, (name, way) in zip(said, best, strict=True):
        assert line.startswith(f"{name}.jpg, {way}: {name}, ")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_command_of_photo_labels_names_the_flower(server: Peer, tmp_path: Path) -> None:
    readme = (ROOT / "examples" / "photo_labels" / "README.md").read_text()
    (command,) = re.findall(r"```\n(curl [^`]+)\n```", readme)
    _call(server, "photo_labels", "--write", str(tmp_path))
    command = command.replace("127.0.0.1:8000", server.rest).replace("/tmp/", f"{tmp_path}/")
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=180, check=True
    )
    assert '"data":["flower",' in done.stdout


def test_repeat_answers_number_by_number(server: Peer) -> None:
    said = _call(server, "repeat", "7", "-1", "--delay-ms", "1")
    assert said.splitlines() == ["response 0: 7", "response 1: -1"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_command_of_repeat_streams_events(server: Peer) -> None:
    readme = (ROOT / "examples" / "repeat" / "README.md").read_text()
    (command,) = re.findall(r"```\n(curl [^`]+)\n```", readme)
    command = command.replace("127.0.0.1:8000", server.rest).replace("500", "1")
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=180, check=True
    )
    assert re.findall(r'"OUT":(\d)', done.stdout) == ["4", "2", "0", "1"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("name", CURLED)
def test_the_curl_command_of_every_readme_is_answered(server: Peer, name: str) -> None:
    readme = (ROOT / "examples" / name / "README.md").read_text()
    (command,) = re.findall(r"```\n(curl [^`]+)\n```", readme)
    assert "127.0.0.1:8000" in command
    command = command.replace("127.0.0.1:8000", server.rest)
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=180, check=True
    )
    assert '"outputs":[' in done.stdout, done.stdout


@pytest.mark.parametrize(
    "name",
    [
        "simple",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("digits", "repeat", "shout")),
    ],
)
def test_a_caller_without_a_server_says_so_in_a_sentence(name: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        command = [sys.executable, "-m", f"examples.{name}.call"]
        done = subprocess.run(
            [*command, "--http", address, "--grpc", address],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("no server answers: ")
    assert "`modelyard serve`" in line


def _call(server: Peer, name: str, *arguments: str) -> str:
    command = [sys.executable, "-m", f"examples.{name}.call", *arguments]
    command += ["--http", server.rest, "--grpc", server.grpc]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _protocols(said: str) -> list[str]:
    return re.findall(r"(\w+): answered", said)
