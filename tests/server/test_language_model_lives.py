"""Engines that die, hang or are replaced, and folders that cannot be served."""

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.llm import make_checkpoint, save_tokeniser
from support.llm_served import (
    GREEDY,
    engine_pid,
    engine_pids,
    figure,
    generate,
    generated,
    parameters,
    streaming,
    write_language_model,
)
from support.server import Server, identity_config, running

PROMPT = "Once upon a time there was a fox."
FLOAT = parameters(precision="float32", threads=1)
STALLING = parameters(precision="float32", threads=1, max_running=1, stall_seconds=8)
LONG = {"max_tokens": 4000, **GREEDY}
PROMISED_SECS = 20.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path, Any]]:
    root = tmp_path_factory.mktemp("repository")
    model = write_language_model(root, "tiny", FLOAT + parameters(max_running=1))
    write_language_model(root, "stalling", STALLING)
    (root / "echo" / "1").mkdir(parents=True)
    (root / "echo" / "config.pbtxt").write_text(identity_config("echo"))
    with running(root, repository_poll_secs=1) as server:
        yield server, root, model


def echo(server: Server) -> int:
    body = {"inputs": [{"name": "INPUT0", "shape": [1, 1], "datatype": "FP32", "data": [1.0]}]}
    return server.post("/v2/models/echo/infer", body)[0]


def ready(server: Server, model: str) -> bool:
    return server.get(f"/v2/models/{model}/ready")[0] == 200


def test_a_killed_engine_fails_what_it_had_said_and_answers_what_it_had_not_once_it_is_back(
    served: tuple[Server, Path, Any],
) -> None:
    server, _, model = served
    pid = engine_pid(server, "tiny")
    untouched: list[tuple[int, dict[str, Any]]] = []
    with streaming(server, "tiny", PROMPT, **LONG) as (_, events):
        next(events)
        waiting = threading.Thread(
            target=lambda: untouched.append(
                generate(server, "tiny", PROMPT, max_tokens=12, **GREEDY)
            )
        )
        waiting.start()
        server.wait_for(lambda: figure(server, "waiting", "tiny") == 1, "the second to wait")
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        last = list(events)[-1]
        assert "the engine's process died while it answered" in last["error"]
        server.wait_for(lambda: not ready(server, "tiny"), "the model to be not ready", 60)
        assert not server.is_ready()
        assert time.monotonic() - killed < PROMISED_SECS
        assert echo(server) == 200
    server.wait_for(lambda: ready(server, "tiny"), "the engine to be back", 60)
    waiting.join(60)
    assert untouched == [(200, untouched[0][1])]
    assert untouched[0][1]["text_output"] == generated(model, PROMPT, 12)
    assert figure(server, "replayed_requests", "tiny") == 1
    assert engine_pid(server, "tiny") != pid
    server.wait_for(server.is_ready, "the server to be ready")


@pytest.mark.slow
def test_an_engine_that_takes_no_step_is_not_ready_and_is_started_again(
    served: tuple[Server, Path, Any],
) -> None:
    server, _, _ = served
    pid = engine_pid(server, "stalling")
    with streaming(server, "stalling", PROMPT, **LONG) as (_, events):
        next(events)
        os.kill(pid, signal.SIGSTOP)
        assert "died" in list(events)[-1]["error"]
    assert not ready(server, "stalling")
    assert echo(server) == 200
    server.wait_for(lambda: ready(server, "stalling"), "the engine to be back", 60)
    assert generate(server, "stalling", PROMPT, max_tokens=3, **GREEDY)[0] == 200
    assert "had work and took no step for 8 s (stall_seconds) and was killed" in server.log()


@pytest.mark.slow
def test_engines_are_added_and_taken_away_in_place_and_one_that_dies_leaves_the_other(
    served: tuple[Server, Path, Any],
) -> None:
    server, root, model = served
    config = root / "stalling" / "config.pbtxt"
    written = config.read_text()
    config.write_text(written + "instance_group { count: 2 kind: KIND_CPU }\n")
    server.wait_for(lambda: "stalling 1: resized to" in server.log(), "two engines", 90)
    server.wait_for(lambda: len(engine_pids(server, "stalling")) == 2, "both to run", 90)
    some = {"max_tokens": 600, **GREEDY}
    with (
        streaming(server, "stalling", PROMPT, **some) as (_, events),
        streaming(server, "stalling", PROMPT, **some) as (_, others),
    ):
        next(events)
        next(others)
        os.kill(engine_pids(server, "stalling")[0], signal.SIGKILL)
        assert ready(server, "stalling")
        assert sorted("error" in list(each)[-1] for each in (events, others)) == [False, True]
    status, answer = generate(server, "stalling", PROMPT, max_tokens=5, **GREEDY)
    assert (status, answer["text_output"]) == (200, generated(model, PROMPT, 5))
    config.write_text(written)
    server.wait_for(lambda: len(engine_pids(server, "stalling")) == 1, "one to be gone", 90)
    assert generate(server, "stalling", PROMPT, max_tokens=5, **GREEDY)[0] == 200


@pytest.mark.slow
def test_a_new_version_takes_over_while_the_old_one_finishes_its_answers(
    served: tuple[Server, Path, Any],
) -> None:
    server, root, model = served
    old = engine_pid(server, "tiny")
    with streaming(server, "tiny", PROMPT, max_tokens=700, **GREEDY) as (_response, events):
        first = next(events)["text_output"]
        folder = root / "tiny" / "2"
        shutil.copytree(root / "tiny" / "1", root / ".next")
        (root / ".next").rename(folder)
        server.wait_for(lambda: serves(server, "tiny", 2), "the new version to serve", 60)
        rest = "".join(event["text_output"] for event in events)
    assert first + rest == generated(model, PROMPT, 700)
    server.wait_for(lambda: not Path(f"/proc/{old}").exists(), "the old engine to be gone")
    status, answer = generate(server, "tiny", PROMPT, max_tokens=3, **GREEDY)
    assert (status, answer["model_version"]) == (200, "2")


def serves(server: Server, model: str, version: int) -> bool:
    return any(
        row["name"] == model and row.get("version") == str(version) and row["state"] == "READY"
        for row in server.index()
    )


def without_tokeniser(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def with_unknown_family(folder: Path) -> None:
    change(folder, model_type="mamba")


def with_senseless_field(folder: Path) -> None:
    change(folder, num_key_value_heads=3)


def without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def with_more_layers_than_weights(folder: Path) -> None:
    change(folder, num_hidden_layers=3)


def change(folder: Path, **fields: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | fields))


BROKEN: dict[str, tuple[Callable[[Path], None] | None, str, str]] = {
    "no_tokeniser": (without_tokeniser, "", "there is no tokenizer.json"),
    "mamba": (with_unknown_family, "", "model_type 'mamba' is not supported"),
    "bad_field": (with_senseless_field, "", "'num_key_value_heads' is 3"),
    "no_weights": (without_weights, "", "there is neither model.safetensors nor"),
    "few_tensors": (with_more_layers_than_weights, "", "lacks the tensor 'model.layers.2."),
    "bad_precision": (None, parameters(precision="int3"), "precision is 'int3'; it must be one of"),
    "typo": (None, parameters(max_runing=3), "there is no parameter 'max_runing'"),
    "no_room": (None, parameters(memory_budget="1MiB"), "memory budget of 1 MiB is too small"),
    "too_long": (None, parameters(context=10_000), "context is 10000"),
    "batches": (None, "max_batch_size: 4", "set the parameter max_running instead"),
    "on_gpu": (None, "instance_group { kind: KIND_GPU gpus: 99 }", "this machine has"),
}


def test_folders_that_cannot_be_served_are_told_apart_each_by_what_is_wrong(
    tmp_path: Path,
) -> None:
    make_checkpoint("llama", tmp_path / "whole")
    save_tokeniser(tmp_path / "whole")
    root = tmp_path / "repository"
    for name, (break_it, config, _) in BROKEN.items():
        shutil.copytree(tmp_path / "whole", root / name / "1")
        (root / name / "config.pbtxt").write_text(f'backend: "llm"\n{config}\n')
        if break_it is not None:
            break_it(root / name / "1")
    with running(root, exit_on_error=False, strict_readiness=False) as server:
        reasons = {row["name"]: row.get("reason", "") for row in server.index()}
    assert {name: complaint in reasons[name] for name, (_, _, complaint) in BROKEN.items()} == (
        dict.fromkeys(BROKEN, True)
    ), reasons
