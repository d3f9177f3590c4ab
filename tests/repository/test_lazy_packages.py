"""Packages whose `__init__` we leave alone are whole for whoever asks them for more."""

import subprocess
import sys

import pytest

from support.server import ROOT


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
