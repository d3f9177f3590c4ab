"""MLServer in a virtual environment of its own, made on first use.

It runs without parallel workers, its cheapest way to serve a model this small, and with its
access log off. A model is `benchmarks/peers/mlserver_models.py`, which that environment imports.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers.seam import Peer, PeerUnavailable
from benchmarks.process import free_addresses, is_http_ready, port_of, running

NAME = "MLServer 1.7.1"
REQUIREMENTS = ("mlserver==1.7.1", "onnxruntime>=1.30")
INSTALL_S = 600
MODELS = Path(__file__).with_name("mlserver_models.py")


@contextmanager
def started(cnn: Path, cache: Path) -> Iterator[Peer]:
    """MLServer with `identity` and, from the ONNX file `cnn`, `cnn`.

    Raises `PeerUnavailable` when it cannot be installed, `PeerFailed` when it does not start.
    """
    folder = cache / "mlserver"
    program = _installed(cache / "mlserver-venv")
    rest, grpc, metrics = free_addresses(3)
    _write_settings(folder, cnn, (rest, grpc, metrics))
    command = [str(program), "start", str(folder)]
    with running(
        NAME,
        command,
        cache / "logs" / "mlserver.log",
        lambda: is_http_ready(rest, "/v2/health/ready"),
    ) as process:
        yield Peer(NAME, process, rest, grpc)


def _installed(environment: Path) -> Path:
    program = environment / "bin" / "mlserver"
    complete = environment / ".complete"
    if complete.is_file() and complete.read_text() == repr(REQUIREMENTS):
        return program
    print(f"installing {' '.join(REQUIREMENTS)} into {environment}", file=sys.stderr)
    python = environment / "bin" / "python"
    try:
        _run([sys.executable, "-m", "venv", "--clear", str(environment)])
        _run([str(python), "-m", "pip", "install", "--quiet", *REQUIREMENTS])
    except subprocess.TimeoutExpired as error:
        raise PeerUnavailable(f"{NAME}: not installed within {INSTALL_S} s") from error
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip().splitlines()[-1:] or [str(error)]
        raise PeerUnavailable(f"{NAME}: cannot be installed: {reason[0]}") from error
    complete.write_text(repr(REQUIREMENTS))
    return program


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_S)


def _write_settings(folder: Path, cnn: Path, listeners: tuple[str, str, str]) -> None:
    rest, grpc, metrics = (int(port_of(listener)) for listener in listeners)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    settings = {
        "host": "127.0.0.1",
        "http_port": rest,
        "grpc_port": grpc,
        "metrics_port": metrics,
        "parallel_workers": 0,
        "debug": False,
        "grpc_max_message_length": 64 << 20,
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    for name, implementation in (("identity", "Identity"), ("cnn", "Cnn")):
        model = folder / name
        model.mkdir()
        shutil.copy(MODELS, model / MODELS.name)
        described = {"name": name, "implementation": f"{MODELS.stem}.{implementation}"}
        parameters = {"version": "1", "uri": str(cnn.resolve())}
        (model / "model-settings.json").write_text(
            json.dumps({**described, "parameters": parameters})
        )
