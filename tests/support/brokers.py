"""Brokers of jobs of a test's own: a folder, a Redis and a RabbitMQ on free ports.

`crash` ends one as `kill -9` does, and brings it back without its messages; the machine's own
services are left alone.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import pytest

from support.server import free_ports

START_S = 120.0
_RABBIT = "usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server"


class KillableBroker(Protocol):
    """A broker that can be killed."""

    url: str

    def crash(self) -> None: ...
    def stop(self) -> None: ...


class FolderBroker:
    """Its crash is that all its files are gone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.url = f"filesystem://{folder}"

    def crash(self) -> None:
        for path in self._folder.rglob("*"):
            with suppress(OSError):
                path.unlink()

    def stop(self) -> None:
        return None


class _Daemon:
    """A program that listens on a port, restarted with nothing of what it kept."""

    def __init__(self, folder: Path, command: list[str], url: str, more: dict[str, str]) -> None:
        self.url = url
        self._folder, self._command = folder, command
        self._port = urlsplit(url).port or 0
        self._environment = {**os.environ, **more}
        self._start()

    def crash(self) -> None:
        self.stop()
        self._start()

    def stop(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _start(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        log = self._folder / "output.log"
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while not _answers(self._port):
            assert self._process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)


def broker(kind: str, folder: Path) -> KillableBroker:
    """Of the kind "folder", "redis" or "rabbitmq". Skips where its program is not installed; with
    CI set it fails."""
    if kind == "folder":
        return FolderBroker(folder / "broker")
    return _redis(folder / "redis") if kind == "redis" else _rabbitmq(folder / "rabbitmq")


def _redis(folder: Path) -> KillableBroker:
    program = shutil.which("redis-server") or _absent("redis-server", "redis-server")
    (port,) = free_ports(1)
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    return _Daemon(folder, [program, *options], f"redis://127.0.0.1:{port}/0", {})


def _rabbitmq(folder: Path) -> KillableBroker:
    programs = sorted(Path("/").glob(_RABBIT))
    program = str(programs[-1]) if programs else _absent("RabbitMQ", "rabbitmq-server")
    port, own = free_ports(2)
    more = {
        "HOME": str(folder),
        "RABBITMQ_NODENAME": f"modelyard-test-{port}@localhost",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_DIST_PORT": str(own),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_CONFIG_FILE": str(folder / "none"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none.env"),
    }
    return _Daemon(folder, [program], f"amqp://guest:guest@127.0.0.1:{port}//", more)


def _absent(what: str, package: str) -> str:
    reason = f"no {what} here; apt-get install {package}"
    if "CI" in os.environ:
        pytest.fail(reason)
    pytest.skip(reason)


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
