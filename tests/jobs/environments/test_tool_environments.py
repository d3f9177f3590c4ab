"""Environments of tools, built for real from a folder of wheels."""

import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from backends.environments.sources import PackageSources
from backends.environments.store import EnvironmentStore
from jobs.environments.environments import EnvironmentFailed, ToolEnvironments
from jobs.environments.locks import LockedPackage
from support.environments import write_wheel

LOCK = (LockedPackage("onlyhere", "1.0"), LockedPackage("msgspec", metadata.version("msgspec")))


def _environments(
    folder: Path, secs: float = 120.0, builds: bool = True, most_bytes: int = 1 << 30
) -> ToolEnvironments:
    wheels = folder / "wheels"
    wheels.mkdir(exist_ok=True)
    sources = PackageSources(wheel_dir=wheels, builds=builds, home=folder)
    store = EnvironmentStore(folder / "environments", most_bytes)
    return ToolEnvironments(store, lambda *_: None, sources, secs, lambda _: LOCK)


def _never() -> bool:
    return False


def _ignore(_: str) -> None:
    return None


def test_own_interpreter_serves_where_it_has_all_of_a_lock(tmp_path: Path) -> None:
    store = EnvironmentStore(tmp_path / "environments", 1 << 30)
    sources = PackageSources(builds=False)
    environments = ToolEnvironments(store, lambda *_: None, sources, 1.0)
    told: list[str] = []
    with environments.obtain("onnx", told.append, _never) as found:
        assert found.python == sys.executable
    assert not told
    assert not (tmp_path / "environments").exists()


@pytest.mark.slow
def test_environment_is_built_once_with_its_build_told_and_takes_nothing_of_ours(
    tmp_path: Path,
) -> None:
    write_wheel(tmp_path / "wheels", "onlyhere", "1.0", "SAID = 'here'")
    write_wheel(tmp_path / "wheels", "msgspec", metadata.version("msgspec"), "SAID = 'another'")
    environments = _environments(tmp_path)
    told: list[str] = []
    with environments.obtain("t", told.append, _never) as first:
        code = "import onlyhere, msgspec; print(onlyhere.SAID, msgspec.SAID)"
        said = subprocess.run([first.python, "-P", "-c", code], capture_output=True, check=True)
        assert said.stdout == b"here another\n"
        assert any("fetching 2 of 2" in one for one in told)
        told.clear()
        with environments.obtain("t", told.append, _never) as second:
            assert second.python == first.python
        assert not told
    with pytest.raises(ImportError):
        __import__("onlyhere")


@pytest.mark.slow
def test_build_that_finds_no_wheel_says_which_and_what_would_help(tmp_path: Path) -> None:
    write_wheel(tmp_path / "wheels", "onlyhere", "1.0", "")
    with pytest.raises(EnvironmentFailed) as failed:
        _environments(tmp_path).obtain("t", _ignore, _never)
    said = str(failed.value)
    assert said.startswith("the tool environment 't' cannot be built: no wheel of 'msgspec==")
    assert "--environment-wheel-dir" in said
    assert not [one for one in (tmp_path / "environments").iterdir() if one.is_dir()]


def test_forbidden_build_names_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed, match=r"--environment-builds=off .*onlyhere==1\.0"):
        _environments(tmp_path, builds=False).obtain("t", _ignore, _never)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("secs", "stopped", "said"),
    [(0.0, _never, "--job-environment-timeout-secs"), (120.0, lambda: True, "it was stopped")],
)
def test_build_ends_at_its_deadline_or_when_nobody_wants_it(
    secs: float, stopped: Callable[[], bool], said: str, tmp_path: Path
) -> None:
    for number in range(3):
        write_wheel(tmp_path / "wheels", "onlyhere", f"1.{number}", "")
    began = time.monotonic()
    with pytest.raises(EnvironmentFailed, match=said):
        _environments(tmp_path, secs).obtain("t", _ignore, stopped)
    assert time.monotonic() - began < 60
