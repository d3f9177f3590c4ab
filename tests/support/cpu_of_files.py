"""CPU seconds of each file of tests, everything that its tests start included: a pytest plugin.

`./dev test -p support.cpu_of_files` prints a table, the most expensive file first. On a machine
that has other work as well only these seconds can be compared, for waiting is not counted.

A control group counts where we may make one (root on Linux). Elsewhere it is this process and those
of its children that have ended; what still runs, a server shared by a session, is missing then.
"""

import os
import resource
from collections import Counter
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

_GROUPS = Path("/sys/fs/cgroup")
_OF_IMPORTS = "(collection)"


class CpuClock:
    """CPU seconds of this process and all that it starts from now on."""

    def __init__(self) -> None:
        self._usage: Path | None = None
        name = f"modelyard-tests-{os.getpid()}"
        for group, usage in (
            (_GROUPS / "cpuacct" / name, "cpuacct.usage"),  # version 1, nanoseconds
            (_GROUPS / name, "cpu.stat"),  # version 2, a line with microseconds
        ):
            with suppress(OSError):
                group.mkdir()
                (group / usage).stat()
                (group / "cgroup.procs").write_text(str(os.getpid()))
                self._usage = group / usage
                return

    def seconds(self) -> float:
        if self._usage is None:
            both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
            return sum(one.ru_utime + one.ru_stime for one in both)
        words = self._usage.read_text().split()
        return int(words[0]) / 1e9 if len(words) == 1 else int(words[1]) / 1e6

    def close(self) -> None:
        """The group goes; who still runs in it moves to the one above."""
        if self._usage is None:
            return
        group = self._usage.parent
        for pid in (group / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (group.parent / "cgroup.procs").write_text(pid)
        with suppress(OSError):
            group.rmdir()


class FileAccounts:
    """What has been used since the last look belongs to the file that is named."""

    def __init__(self) -> None:
        self._clock = CpuClock()
        self._last = self._clock.seconds()
        self.seconds: Counter[str] = Counter()

    def book(self, file: str) -> None:
        now = self._clock.seconds()
        self.seconds[file] += now - self._last
        self._last = now

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        self.book(_OF_IMPORTS)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            self.book(item.nodeid.partition("::")[0])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._clock.close()
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["cpu"] = dict(self.seconds)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """One of pytest-xdist's processes has ended."""
        self.seconds.update(getattr(node, "workeroutput", {}).get("cpu", {}))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("CPU seconds of files")
        for file, seconds in self.seconds.most_common():
            terminalreporter.line(f"{seconds:8.2f} {file}")
        terminalreporter.line(f"{self.seconds.total():8.2f} in all")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(FileAccounts(), "cpu-of-files")
