"""A load that lacked something is tried again by itself, with growing pauses, not for ever."""

import errno
from pathlib import Path

import pytest

from backends.errors import LoadFailed
from server.fleet.memory.grants import MemoryShortage
from server.fleet.memory.shortage import LONGEST_PAUSE_S, MOST_TRIES, pause_s, shortage_of
from support.server import identity_config, running

MODEL = """
import errno, os

class TritonPythonModel:
    def initialize(self, args):
        if os.path.exists(os.environ["SHORTAGE"]):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def execute(self, requests):
        return []
"""


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (OSError(errno.ENFILE, "x"), "file descriptors"),
        (MemoryError(), "memory"),
        (LoadFailed("onnxruntime: std::bad_alloc"), "memory"),
        (LoadFailed("copying: [Errno 28] No space left on device"), "disk space"),
        (LoadFailed("no such file"), ""),
        (FileNotFoundError(errno.ENOENT, "x"), ""),
    ],
)
def test_a_shortage_is_told_from_other_failures(error: Exception, what: str) -> None:
    assert shortage_of(error) == what
    outer = LoadFailed("it failed")
    outer.__cause__ = error
    assert shortage_of(outer) == what


def test_memory_that_others_only_use_for_a_moment_may_be_there_again() -> None:
    error = MemoryShortage("the budget has no room")
    assert shortage_of(error) == ""
    error.may_pass = True
    assert shortage_of(error) == "memory"


def test_pauses_grow_up_to_a_bound_and_end() -> None:
    pauses = [pause_s(tries) for tries in range(1, MOST_TRIES + 1)]
    assert pauses[:3] == [1.0, 2.0, 4.0]
    assert pauses[-2:] == [LONGEST_PAUSE_S, None]


@pytest.mark.slow
def test_a_model_is_loaded_once_there_is_enough_again(tmp_path: Path) -> None:
    home = tmp_path / "models" / "m"
    (home / "1").mkdir(parents=True)
    (home / "1" / "model.py").write_text(MODEL)
    (home / "config.pbtxt").write_text(identity_config("m").replace('"identity"', '"python"'))
    shortage = tmp_path / "shortage"
    shortage.touch()
    with running(
        tmp_path / "models", wait=False, environment={"SHORTAGE": str(shortage)}
    ) as server:
        reason = "for lack of file descriptors; try 1 of"
        server.wait_for(lambda: reason in server.log(), "the first try")
        server.wait_for(lambda: "try 2 of" in server.log(), "the second try")
        assert "This is a bug" not in server.log()
        shortage.unlink()
        server.wait_for(lambda: server.is_ready("/v2/models/m/ready"), "the model")
