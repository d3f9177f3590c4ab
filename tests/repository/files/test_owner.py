"""Tokens of processes."""

import subprocess
import sys

from repository.files import owner
from support.killing import ROOT


def test_this_process_is_alive():
    assert owner.alive(owner.token())


def test_a_process_that_ended_is_not():
    script = "from repository.files.owner import alive, token; print(token(), alive(token()))"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    token, alive = done.stdout.split()
    assert alive == "True"
    assert not owner.alive(token)


def test_another_process_with_the_same_id_is_not_it():
    pid, started, boot = owner.token().split(".")
    assert not owner.alive(f"{pid}.{int(started) - 1}.{boot}")
    assert not owner.alive(f"{pid}.{started}.{'0' * 32}")


def test_what_is_no_token_is_not_alive():
    assert not any(owner.alive(text) for text in ("", "1", "../1.1." + "a" * 32))
