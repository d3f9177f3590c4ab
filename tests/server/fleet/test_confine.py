"""Processes that parse hostile files can do nothing else; and check and render as before."""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from repository.model import ModelConfig, ModelVersion
from repository.process.child import ChildProgram
from repository.process.message_child import MessageChild
from repository.sandbox.children import child_environment
from repository.sandbox.enter import kernel
from repository.sandbox.policy import sandbox_of
from server.fleet.checks.check import _Child
from server.fleet.confine import Confiner, checker_sandbox, template_sandbox
from server.openai.prompt_tokeniser import _start
from server.settings.table import Settings

pytestmark = pytest.mark.skipif(
    kernel().landlock_abi < 1 or not kernel().seccomp, reason="needs Landlock and seccomp"
)

_TRY = """
from repository.sandbox.enter import enter_from_environment; enter_from_environment()
import json, os, socket, subprocess, sys
def fork(_):
    if not os.fork(): os._exit(0)
def thread(_):
    import threading
    one = threading.Thread(target=int); one.start(); one.join()
def program(_): subprocess.check_output(["true"])
def connect(_): socket.socket(socket.AF_INET)
def unix(_): socket.socket(socket.AF_UNIX)
def write(path): open(path + ".new", "w")
def read(path): open(path).read()
def own(name):
    import threading
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    try:
        for one in (os.getpid(), other.native_id):
            with open(f"/proc/self/task/{one}/{name}", "r+b", 0) as file:
                file.write(file.read())
    finally:
        done.set()
        other.join()
said = {}
for name, path in json.loads(sys.argv[1]):
    try:
        globals()[name.split()[0]](path)
        said[name] = True
    except OSError:
        said[name] = False
print(json.dumps(said))
"""


def tried(sandbox: object, **paths: Path) -> dict[str, bool]:
    """What came of everything that may be tried; `paths` are read, by their names."""
    tries = ("program", "fork", "thread", "connect", "unix", "write")
    acts = [(name, str(paths["model"])) for name in tries]
    acts += [(f"read {name}", str(path)) for name, path in paths.items()]
    acts += [(f"own {name}", name) for name in ("comm", "oom_score_adj")]
    done = subprocess.run(
        [sys.executable, "-c", _TRY, json.dumps(acts)],
        env=child_environment(sandbox),  # type: ignore[arg-type]
        capture_output=True,
        check=True,
    )
    said: dict[str, bool] = json.loads(done.stdout)
    return said


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    models, state = tmp_path / "models", tmp_path / "state"
    for folder in (models, state, state / "run"):
        folder.mkdir()
    return Settings(model_repository=(models,), state_dir=state)


def test_the_checker_reads_models_and_does_nothing_else(settings: Settings) -> None:
    sandbox = checker_sandbox(settings, settings.state_dir / "run")
    model, secret = settings.model_repository[0] / "model.onnx", settings.state_dir / "modelyard.db"
    pushed = settings.store_folder / "snapshots" / "config.pbtxt"
    for file in (model, secret, pushed):
        file.write_text("x")
    said = tried(sandbox, model=model, secret=secret, pushed=pushed)
    assert {act for act, worked in said.items() if worked} == {
        "thread",
        "read model",
        "read pushed",
    }


def test_the_renderer_of_templates_reads_no_models_either(settings: Settings) -> None:
    model = settings.model_repository[0] / "tokenizer.json"
    model.write_text("x")
    said = tried(template_sandbox(settings), model=model, runtime=Path(json.__file__))
    assert {act for act, worked in said.items() if worked} == {"thread", "read runtime"}


def test_a_worker_names_its_threads_where_it_may_use_a_gpu(settings: Settings) -> None:
    folder = settings.model_repository[0] / "m"
    config = ModelConfig(name="m", backend="python")
    version = ModelVersion("m", 1, folder, folder / "1", config, "")
    names = []
    for gpus in ((), (0,)):
        confinement = Confiner(settings, settings.state_dir / "run", gpus).confinement_of(version)
        sandbox = sandbox_of(confinement.kernel, confinement.around, confinement.tenant)
        said = tried(sandbox, model=settings.state_dir / "x")
        names.append({act for act, worked in said.items() if worked and act.startswith("own ")})
    assert names == [set(), {"own comm", "own oom_score_adj"}]


def test_off_confines_neither(settings: Settings) -> None:
    off = Settings(state_dir=settings.state_dir, worker_sandbox="off")
    assert checker_sandbox(off, settings.state_dir) is None
    assert template_sandbox(off) is None


def test_processes_that_parse_write_into_the_log_and_not_to_our_terminal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body() -> None:
        child = (await _Child.start(None))._process
        renderer = await _start(None)
        for process in (child, renderer):
            stderr = os.readlink(f"/proc/{process.pid}/fd/2")
            assert stderr != os.readlink("/proc/self/fd/2")
            assert stderr.startswith("pipe:")
            process.kill()
            await process.stop(60)
        program = ChildProgram("no_such_module", "modelyard checker", "checker", os.environ)
        forging = await MessageChild.start(program)
        assert await forging.gone() == "exited with status 1"
        await forging.stop(60)

    asyncio.run(body())
    deadline = time.monotonic() + 60
    while "No module named 'no_such_module'" not in caplog.text and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "checker: ModuleNotFoundError" in caplog.text
    assert caplog.records[-1].name == "modelyard.worker"
