"""Builds the network for every installed runtime, serves it and prints the table:
`python -m examples.one_network`."""

import argparse
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from examples.one_network.build import build
from examples.one_network.compare import lines, table

START_S = 180.0


def main() -> None:
    """Print the table, and stop the server."""
    parser = argparse.ArgumentParser(prog="python -m examples.one_network", description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each number of clients")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory(prefix="one_network-") as folder:
        repository = Path(folder) / "models"
        build(repository)
        http, grpc, metrics = _free_ports(3)
        command = [sys.executable, "-m", "server.cli", "serve", "--allow-admin=false"]
        command += [f"--model-repository={repository}", f"--state-dir={folder}/state"]
        command += [f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}"]
        with (
            open(Path(folder) / "server.log", "w") as log,
            subprocess.Popen(command, stdout=log, stderr=log) as server,
        ):
            try:
                _wait_until_ready(server, http, Path(log.name))
                print(table(lines(f"127.0.0.1:{grpc}", f"127.0.0.1:{metrics}", seconds)))
            finally:
                server.terminate()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _wait_until_ready(server: "subprocess.Popen[bytes]", http: int, log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and server.poll() is None:
        try:
            urlopen(f"http://127.0.0.1:{http}/v2/health/ready", timeout=5).close()
        except (URLError, OSError):
            time.sleep(0.2)
        else:
            return
    sys.exit(f"the server did not become ready within {START_S:.0f} s:\n{log.read_text()}")


if __name__ == "__main__":
    main()
