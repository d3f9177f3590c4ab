"""The PostgreSQL of this test run: the one that answers, or a private one, started and stopped.

`server_url()` is the URL of a server on which databases can be made. It is the one that
MODELYARD_TEST_POSTGRES names, or else the local one. Where none answers and PostgreSQL's programs
are installed, a cluster in a temporary folder is started on a free port and ends with the process.
"""

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import psycopg
import pytest

from support.server import free_ports

LOCAL = "postgresql://postgres@127.0.0.1:5432/postgres"
PROGRAMS = Path("/usr/lib/postgresql")
START_S = 60

NOTHING_KEPT = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""Tests pull no plugs; half of the time goes otherwise into waiting for the disk."""


def server_url() -> str:
    """Skips the test when there is none; with CI set it fails."""
    url, problem = _found()
    if url:
        return url
    reason = f"no PostgreSQL: {problem}; apt-get install postgresql, or name one by "
    reason += "MODELYARD_TEST_POSTGRES"
    if "CI" in os.environ:
        pytest.fail(reason)
    pytest.skip(reason)


@cache
def _found() -> tuple[str, str]:
    """The URL, or "" and why there is none. Once a process."""
    url = os.environ.get("MODELYARD_TEST_POSTGRES", LOCAL)
    try:
        psycopg.connect(url, connect_timeout=60).close()
    except psycopg.OperationalError as error:
        programs = _programs()
        if programs is None:
            return "", f"nothing answers ({str(error).strip()}), and its programs are not here"
        return _private(programs)
    return url, ""


def _programs() -> Path | None:
    """The folder of the newest installed version's programs."""
    installed = [path.parent for path in PROGRAMS.glob("*/bin/initdb")]
    if installed:
        return max(installed, key=lambda path: float(path.parent.name))
    found = shutil.which("initdb")
    return Path(found).parent if found else None


def _private(programs: Path) -> tuple[str, str]:
    """Start a cluster of our own; it refuses to run as root."""
    folder = Path(tempfile.mkdtemp(prefix="modelyard-postgres-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    user = _user()
    if user:
        account = pwd.getpwnam(user)
        os.chown(folder, account.pw_uid, account.pw_gid)
    data, log = folder / "data", folder / "log"
    made = [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8"]
    done = _run([*made, "--no-sync", "--locale=C"], user, folder)
    if done.returncode:
        return "", f"initdb failed: {done.stderr.strip()[-500:]}"
    (port,) = free_ports(1)
    settings = {**NOTHING_KEPT, "unix_socket_directories": str(folder), "max_connections": "300"}
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    start = [programs / "pg_ctl", "-D", data, "-l", log, "-w", "-t", str(START_S)]
    options = f"-p {port} -h 127.0.0.1 {options}"
    done = _run([*start, "-o", options, "start"], user, folder)
    if done.returncode:
        return "", f"it does not start: {log.read_text()[-500:] if log.exists() else done.stderr}"
    atexit.register(_stop, int((data / "postmaster.pid").read_text().split()[0]))
    return f"postgresql://postgres@127.0.0.1:{port}/postgres", ""


def _stop(pid: int) -> None:
    """At once; nothing of it is kept."""
    try:
        os.kill(pid, signal.SIGQUIT)
    except ProcessLookupError:
        return


def _user() -> str:
    """Whom to become for it; "" for who we are."""
    if os.geteuid() != 0:
        return ""
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    return ""


def _run(command: list[Path | str], user: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """To a log file's end: what pg_ctl starts would keep a pipe open."""
    account = pwd.getpwnam(user) if user else None
    with tempfile.TemporaryFile("w+") as said:
        done = subprocess.run(
            list(map(str, command)),
            cwd=folder,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            user=None if account is None else account.pw_uid,
            group=None if account is None else account.pw_gid,
            extra_groups=None if account is None else [],
            timeout=2 * START_S,
            check=False,
        )
        said.seek(0)
        return subprocess.CompletedProcess(done.args, done.returncode, "", said.read())
