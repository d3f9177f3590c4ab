"""The proxies of deploy/ in front of a server, for real: `with nginx(folder, ports) as proxy`.

The shipped configuration is used as it is, but for its names, ports and certificate. Inference is
at https://localhost, the console at https://console.localhost, both on `proxy.port`.
"""

import http.client
import os
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.server import ROOT, free_ports
from support.tls import Certificates, make_certificates

INFERENCE, CONSOLE = "localhost", "console.localhost"
START_SECS = 60.0
STOP_SECS = 30.0


@dataclass(frozen=True)
class TLSProxy:
    """A proxy that listens on 127.0.0.1. `authority` signed its certificate."""

    port: int
    authority: Path

    @property
    def inference(self) -> str:
        return f"{INFERENCE}:{self.port}"

    @property
    def console(self) -> str:
        return f"https://{CONSOLE}:{self.port}"

    def context(self) -> ssl.SSLContext:
        """Trusts the proxy's certificate and no other."""
        return ssl.create_default_context(cafile=str(self.authority))

    def connect(self, source: str = "127.0.0.1") -> http.client.HTTPSConnection:
        """To the inference host, coming from the address `source`."""
        return http.client.HTTPSConnection(
            INFERENCE, self.port, timeout=60, context=self.context(), source_address=(source, 0)
        )


Proxy = Callable[[Path, int, Mapping[int, int]], AbstractContextManager[TLSProxy]]


def command_of(name: str) -> str:
    """Where the program is; skips the test, or fails it under CI, when it is nowhere."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if found is None:
        missing = f"{name} is not installed; ./dev test --all installs it as root"
        pytest.fail(missing) if "CI" in os.environ else pytest.skip(missing)
    return found


def replaced(text: str, changes: Mapping[str, str]) -> str:
    """Each key replaced, which is a regular expression that must be found."""
    for pattern, new in changes.items():
        text, count = re.subn(pattern, new, text)
        assert count, f"there is no {pattern} in the shipped configuration"
    return text


def _upstreams(ports: Mapping[int, int]) -> dict[str, str]:
    return {rf"127\.0\.0\.1:{usual}\b": f"127.0.0.1:{here}" for usual, here in ports.items()}


@contextmanager
def nginx(folder: Path, port: int, ports: Mapping[int, int]) -> Iterator[TLSProxy]:
    """deploy/nginx/modelyard.conf in an nginx.conf that holds nothing else of weight.

    `ports`: usual port of the server → the one it has.
    """
    certificates = make_certificates(folder)
    (redirect,) = free_ports(1)
    site = folder / "modelyard.conf"
    site.write_text(
        replaced(
            (ROOT / "deploy" / "nginx" / "modelyard.conf").read_text(),
            {
                r"listen 443\b": f"listen 127.0.0.1:{port}",
                r"listen 80\b": f"listen 127.0.0.1:{redirect}",
                r"console\.example\.org": CONSOLE,
                r"models\.example\.org": INFERENCE,
                r"/etc/nginx/tls/modelyard\.pem": str(certificates.server),
                r"/etc/nginx/tls/modelyard\.key": str(certificates.server_key),
                **_upstreams(ports),
            },
        )
    )
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    whole = folder / "nginx.conf"
    whole.write_text(
        f"daemon off; worker_processes 1; pid {folder}/pid; error_log stderr notice;\n"
        "events { worker_connections 512; }\n"
        f"http {{ access_log off; {temporary} include {site}; }}\n"
    )
    command = [command_of("nginx"), "-p", str(folder), "-c", str(whole)]
    subprocess.run([*command, "-t"], check=True, capture_output=True, timeout=60)
    with _running(command, folder, port):
        yield TLSProxy(port, certificates.authority)


@contextmanager
def caddy(folder: Path, port: int, ports: Mapping[int, int]) -> Iterator[TLSProxy]:
    """deploy/caddy/Caddyfile with a certificate of ours."""
    certificates = make_certificates(folder)
    path = folder / "Caddyfile"
    path.write_text(_caddyfile(certificates, port, ports))
    command = [command_of("caddy")]
    where = ["--config", str(path), "--adapter", "caddyfile"]
    subprocess.run(
        [*command, "validate", *where], check=True, capture_output=True, timeout=60,
        env=_home(folder),
    )  # fmt: skip
    with _running([*command, "run", *where], folder, port):
        yield TLSProxy(port, certificates.authority)


def _caddyfile(certificates: Certificates, port: int, ports: Mapping[int, int]) -> str:
    tls = f"\n\ttls {certificates.server} {certificates.server_key}"
    site = replaced(
        (ROOT / "deploy" / "caddy" / "Caddyfile").read_text(),
        {
            r"(?m)^models\.example\.org \{": f"{INFERENCE}:{port} {{\n\tbind 127.0.0.1{tls}",
            r"(?m)^console\.example\.org \{": f"{CONSOLE}:{port} {{\n\tbind 127.0.0.1{tls}",
            **_upstreams(ports),
        },
    )
    return f"{{\n\tadmin off\n\tauto_https disable_redirects\n}}\n{site}"


def _home(folder: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder)}


@contextmanager
def _running(command: list[str], folder: Path, port: int) -> Iterator[None]:
    log_file = folder / "proxy.log"
    with log_file.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=_home(folder))
    try:
        until = time.monotonic() + START_SECS
        while not _listens(port):
            is_late = process.poll() is not None or time.monotonic() > until
            assert not is_late, log_file.read_text()
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as one:
        one.settimeout(5)
        return one.connect_ex(("127.0.0.1", port)) == 0
