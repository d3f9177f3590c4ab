"""Tests leave no file in the checkout: a pytest plugin that names those which are new at the end.

Under CI they fail the run. Elsewhere somebody may have written them meanwhile.
"""

import os
import subprocess
from pathlib import Path

import pytest

LEFT_FILES = 10
"""Exit status: none of pytest's own."""


class CheckoutWatch:
    """The untracked files of the checkout before the tests, and those that are new after them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._before = untracked(root)
        self.new: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.new = sorted(untracked(self._root) - self._before)
        if self.new and os.environ.get("CI"):
            session.exitstatus = LEFT_FILES

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.new:
            terminalreporter.section("new files in the checkout; tests write below tmp_path")
            for name in self.new:
                terminalreporter.line(name)


def untracked(root: Path) -> set[str]:
    """Files that git neither tracks nor ignores; none where this is no checkout."""
    command = ["git", "ls-files", "--others", "--exclude-standard", "-z"]
    try:
        found = subprocess.run(command, cwd=root, capture_output=True, timeout=60, check=False)
    except OSError:
        return set()
    return set(filter(None, found.stdout.decode(errors="replace").split("\0")))


def pytest_configure(config: pytest.Config) -> None:
    """Watch in the process that hears of all tests, in none of pytest-xdist's others."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(CheckoutWatch(config.rootpath), "clean-checkout")
