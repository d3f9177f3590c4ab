"""A Prometheus of its own over a server: `with scraping("127.0.0.1:8002", folder) as address`."""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from support.server import free_ports
from support.tls_proxy import command_of

FIND_SECS = 60.0
_PLAIN = """
global: {scrape_interval: 15s, evaluation_interval: 15s}
scrape_configs:
  - job_name: modelyard
    static_configs:
      - targets: ["127.0.0.1:8002"]
"""


@contextmanager
def scraping(target: str, folder: Path, config: str = _PLAIN) -> Iterator[str]:
    """The address of a Prometheus that scrapes `target` each second, where `config` says 8002."""
    (port,) = free_ports(1)
    path = folder / "prometheus.yml"
    every_second = re.sub(r"_interval: 15s", "_interval: 1s", config)
    path.write_text(every_second.replace("127.0.0.1:8002", target))
    address = f"127.0.0.1:{port}"
    command = [command_of("prometheus"), f"--config.file={path}", f"--web.listen-address={address}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--storage.tsdb.path={folder / 'data'}", "--log.level=warn"],
            stdout=log,
            stderr=log,
        )
    try:
        yield address
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until_found(address: str, infer: Callable[[], object], text: str) -> list[Any]:
    """Ask the model again and again meanwhile: a scrape of a busy machine may come too late."""
    deadline = time.monotonic() + FIND_SECS
    while time.monotonic() < deadline:
        infer()
        if found := query(address, text):
            return found
        time.sleep(0.05)
    return []


def query(address: str, text: str) -> list[Any]:
    """The series a query finds; none while Prometheus is starting. Raises ValueError for a query
    that it does not understand."""
    url = f"http://{address}/api/v1/query?{urlencode({'query': text})}"
    try:
        with urlopen(url, timeout=60) as reply:
            found: list[Any] = json.load(reply)["data"]["result"]
            return found
    except HTTPError as error:
        if error.code == 400:
            raise ValueError(f"{text}: {error.read().decode()}") from error
        return []
    except (URLError, ConnectionError):
        return []
