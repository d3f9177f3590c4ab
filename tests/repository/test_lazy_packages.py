"""Packages whose `__init__` we leave alone are whole for whoever asks them for more."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.server import ROOT

ASK = """
import sys, threading
from queue import SimpleQueue

sys.path.insert(0, sys.argv[1])
from repository import lazy_packages

lazy_packages.PACKAGES = frozenset({"waiting"})
lazy_packages.install()
import gate
import waiting

found = SimpleQueue()


def ask():
    try:
        found.put(waiting.NAME)
    except AttributeError as error:
        found.put(error)


first, second = (threading.Thread(target=ask, daemon=True) for _ in range(2))
first.start()
assert gate.entered.wait(30)
second.start()
second.join(0.2)  # it waits by now, or has failed
gate.go.set()
print([found.get(timeout=30) for _ in range(2)], hasattr(waiting, "OTHER"))
"""


def _python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        text=True,
        capture_output=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_generated_messages_come_without_the_client() -> None:
    loaded = _python(
        "import sys, repository.model\n"
        "from tritonclient.grpc import service_pb2\n"
        "print(service_pb2.ModelInferRequest.__name__, 'grpc' in sys.modules)"
    )

    assert loaded == "ModelInferRequest False"


@pytest.mark.parametrize(
    "code",
    [
        "import tritonclient.grpc as triton; print(triton.InferenceServerClient.__name__)",
        "from tritonclient.grpc import InferenceServerClient as made; print(made.__name__)",
        "import tritonclient.grpc.aio as triton; print(triton.InferenceServerClient.__name__)",
        "import tritonclient.grpc as g; print(g.service_pb2 and g.InferenceServerClient.__name__)",
    ],
)
def test_whoever_wants_the_client_gets_it(code: str) -> None:
    assert _python("import repository.model\n" + code) == "InferenceServerClient"


def test_uvicorn_can_be_run_by_a_model_all_the_same() -> None:
    found = _python(
        "import repository\n"
        "from uvicorn.config import Config\n"
        "import sys, uvicorn\n"
        "print('uvicorn.main' in sys.modules, uvicorn.Config is Config, callable(uvicorn.run),"
        " bool(uvicorn.__version__))"
    )

    assert found == "False True True True"


def test_a_name_that_nobody_has_is_told_as_ever() -> None:
    found = _python(
        "import repository, uvicorn\n"
        "try:\n    uvicorn.nothing_like_it\n"
        "except AttributeError as error:\n    print(error)"
    )

    assert found == "module 'uvicorn' has no attribute 'nothing_like_it'"


def test_the_control_process_starts_without_numpy_grpcio_and_alembic() -> None:
    heavy = _python(
        "import sys, server.control_process\n"
        "print([name for name in ('numpy', 'grpc', 'alembic', 'click') if name in sys.modules])"
    )

    assert heavy == "[]"


def test_a_thread_that_asks_while_another_runs_the_package_gets_the_name(tmp_path: Path) -> None:
    (tmp_path / "gate.py").write_text(
        "import threading\nentered, go = threading.Event(), threading.Event()\n"
    )
    (tmp_path / "waiting").mkdir()
    (tmp_path / "waiting" / "__init__.py").write_text(
        "import gate\ngate.entered.set()\ngate.go.wait(30)\nNAME = 7\n"
    )
    script = ASK.replace("sys.argv[1]", repr(str(tmp_path)))

    assert _python(script) == "[7, 7] False"
