"""The systemd unit: what systemd says of it, and what the server needs that it must not forbid."""

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from server.settings.table import TABLE
from support.server import ROOT

UNIT = ROOT / "deploy" / "systemd" / "modelyard.service"
SANDBOX_CALLS = {
    "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "seccomp"
}  # fmt: skip


def service() -> dict[str, str]:
    """Of a key that stands there more than once, the last value."""
    read = configparser.ConfigParser(strict=False, interpolation=None)
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read(UNIT)
    return dict(read["Service"])


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    command = ["systemd-analyze", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_systemd_understands_every_line(tmp_path: Path) -> None:
    text = re.sub(r"(?m)^ExecStart=.*", "ExecStart=/bin/true", UNIT.read_text())
    text = re.sub(r"(?m)^(User|Group)=.*", r"\1=root", text)
    (tmp_path / "modelyard.service").write_text(text)
    done = analyze("verify", tmp_path / "modelyard.service")
    ours = [line for line in done.stderr.splitlines() if "modelyard.service" in line]
    assert (done.returncode, ours) == (0, [])


def test_its_exposure_is_low() -> None:
    done = analyze("security", "--offline=yes", "--threshold=20", UNIT)
    assert done.returncode == 0, done.stdout


def test_the_worker_sandbox_can_be_entered() -> None:
    allowed = service()["SystemCallFilter"].split()
    assert allowed[0] == "@system-service"
    assert set(allowed) >= SANDBOX_CALLS
    assert service()["PrivateTmp"] == "yes"
    assert "MemoryDenyWriteExecute" not in service()
    assert "ProcSubset" not in service()


def test_the_server_has_time_to_drain() -> None:
    (row,) = [row for row in TABLE if row.name == "exit_timeout_secs"]
    assert int(service()["TimeoutStopSec"]) > float(row.default_text)
    assert service()["KillMode"] == "mixed"


def test_settings_that_the_unit_names_exist() -> None:
    named = set(re.findall(r"(?m)^Environment=(MODELYARD_\w+)=", UNIT.read_text()))
    assert named
    assert named <= {row.variable for row in TABLE}
