"""Whether memory comes back: `python -m benchmarks.residency.cycles`.

Loads one network, asks it once and unloads it, 100 times for each installed runtime, in a server
of its own; and a python model. Prints one row a runtime: resident memory of the server and its
workers after the first and the last unload. Exit status 1 where one ends more than 5 % above its
first cycle.
"""

import argparse
import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.process import Process, family, free_addresses, is_http_ready, port_of, running

ALLOWED = 1.05
SETTLE_S, PAUSE_S = 20.0, 0.1
MODEL = "cycled"

PYTHON = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.weights = np.ones((1000, 1000), np.float32)

    def execute(self, requests):
        tensors = [request.inputs()[0].as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", one)]) for one in tensors]
"""
PYTHON_CONFIG = """
backend: "python" max_batch_size: 8
input { name: "X" data_type: TYPE_FP32 dims: 4 }
output { name: "Y" data_type: TYPE_FP32 dims: 4 }
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.residency.cycles", description=__doc__
    )
    parser.add_argument("--cycles", type=int, default=100, help="loads and unloads (100)")
    parser.add_argument("--only", default="", help="runtimes to cycle, separated by commas (all)")
    given = parser.parse_args()
    only = set(filter(None, given.only.split(",")))
    grown = False
    print("| runtime | after the first unload | after the last | growth | cycles |")
    print("|---|---:|---:|---:|---:|", flush=True)
    with tempfile.TemporaryDirectory(prefix="modelyard-cycles-") as folder:
        for backend, repository in _repositories(Path(folder)):
            if only and backend not in only:
                continue
            first, last = _cycle(repository, given.cycles)
            grown |= last > first * ALLOWED
            row = f"| `{backend}` | {first / 1e6:.1f} MB | {last / 1e6:.1f} MB | "
            print(f"{row}{last / first - 1:+.1%} | {given.cycles} |", flush=True)
    return int(grown)


def _repositories(root: Path) -> Iterator[tuple[str, Path]]:
    """A runtime and a repository of one model for it; of those that are installed."""
    from backends.errors import LoadFailed
    from backends.registry import require_packages
    from examples.one_network.build import CONFIG
    from examples.one_network.formats import WRITERS

    for backend, write in WRITERS.items():
        try:
            require_packages(backend)
        except LoadFailed as reason:
            print(f"{backend} is left out: {reason}", file=sys.stderr)
            continue
        folder = root / backend / MODEL / "1"
        folder.mkdir(parents=True)
        write(folder)
        (folder.parent / "config.pbtxt").write_text(CONFIG.replace("one_network", MODEL))
        yield backend, root / backend
    folder = root / "python" / MODEL / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(PYTHON)
    (folder.parent / "config.pbtxt").write_text(PYTHON_CONFIG)
    yield "python", root / "python"


def _cycle(repository: Path, cycles: int) -> tuple[int, int]:
    """Resident bytes after the first unload and after the last."""
    rest, grpc, metrics = free_addresses(3)
    command = [sys.executable, "-m", "server.cli", "serve", "--model-control-mode=explicit"]
    command += [f"--model-repository={repository}", f"--state-dir={repository.parent / 'state'}"]
    command += [f"--http-port={port_of(rest)}", f"--grpc-port={port_of(grpc)}"]
    command += [f"--metrics-port={port_of(metrics)}", "--allow-admin=false"]
    (repository.parent / "state").mkdir(exist_ok=True)

    def ready() -> bool:
        return is_http_ready(rest, "/v2/health/ready")

    log = repository.parent / f"{repository.name}.log"
    with running("modelyard", command, log, ready, deadline_s=300.0) as process:
        first = 0
        for _ in range(cycles):
            _post(rest, f"/v2/repository/models/{MODEL}/load")
            _post(rest, f"/v2/models/{MODEL}/infer", _request(rest))
            _post(rest, f"/v2/repository/models/{MODEL}/unload")
            last = _settled(rest, process)
            first = first or last
    return first, last


def _request(rest: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{rest}/v2/models/{MODEL}", timeout=60) as response:
        tensors = json.load(response)["inputs"]
    inputs = []
    for tensor in tensors:
        shape = [max(1, size) for size in tensor["shape"]]
        count = 1
        for size in shape:
            count *= size
        inputs.append({**tensor, "shape": shape, "data": [0.5] * count})
    return {"inputs": inputs}


def _settled(rest: str, process: Process) -> int:
    """Resident bytes of all processes but the checkers, once the version is closed."""
    until = time.monotonic() + SETTLE_S
    while time.monotonic() < until and _state(rest) != "UNAVAILABLE":
        time.sleep(PAUSE_S)
    time.sleep(PAUSE_S)
    workers = [pid for pid in family(process.pid) if pid != process.pid and _is_worker(pid)]
    return sum(map(_resident, [process.pid, *workers]))


def _state(rest: str) -> str:
    (row,) = _post(rest, "/v2/repository/index")
    return str(row.get("state", ""))


def _is_worker(pid: int) -> bool:
    try:
        return b"checker" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _resident(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def _post(rest: str, path: str, body: object = None) -> Any:
    data = b"" if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{rest}{path}", data, method="POST")
    with urllib.request.urlopen(request, timeout=300) as response:
        text = response.read()
    return json.loads(text) if text else None


if __name__ == "__main__":
    sys.exit(main())
