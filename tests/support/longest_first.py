"""The files of tests that take longest come first, so that no process of tests is left with a long
one at the end. A pytest plugin; `./dev test` tells pytest-xdist to keep this order.

How long a test took is kept in pytest's cache, for those where it matters; of others, and in a new
checkout, it is guessed, and the files of `LONG_FILES` come before the rest.
"""

from collections import Counter

import pytest

SECONDS = "modelyard/seconds-of-tests"
_LEAST_SECS = 0.02
_FIRST_SECS = 10_000
_GUESS_SECS, _GUESS_OF_SLOW_SECS = 0.01, 5.0

LONG_FILES = (
    "tests/jobs/worker/test_crashes.py",
    "tests/admin_ui/browser/test_screens.py",
    "tests/jobs/tools/test_convert.py",
    "tests/server/test_isolation.py",
    "tests/server/control_process/test_push_formats.py",
    "tests/server/faults/test_callees.py",
    "tests/server/test_starting.py",
    "tests/deploy/test_tls_proxies.py",
    "tests/examples/test_call.py",
    "tests/modelyard/test_wheel.py",
    "tests/docs/test_tutorials.py",
    "tests/server/control_process/test_lost_database.py",
    "tests/server/control_process/test_crashes.py",
    "tests/benchmarks/test_soak.py",
    "tests/benchmarks/test_faults.py",
    "tests/jobs/tools/quantise_llm/test_quantise_llm.py",
    "tests/admin_ui/browser/test_charts.py",
    "tests/admin_ui/browser/test_incident.py",
)
"""Those of the slow tests that take tens of seconds, some of them with few tests."""

_seconds: Counter[str] = Counter()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """After the tests that do not run were taken out."""
    known = _known(config)
    of_files: Counter[str] = Counter()
    recorded: set[str] = set()
    for item in items:
        is_slow = item.get_closest_marker("slow") is not None
        guess = _GUESS_OF_SLOW_SECS if is_slow else _GUESS_SECS
        of_files[_file(item)] += known.get(item.nodeid, guess)
        if is_slow and item.nodeid in known:
            recorded.add(_file(item))
    for at, file in enumerate(reversed(LONG_FILES), 1):
        if file not in recorded:
            of_files[file] += at * _FIRST_SECS
    items.sort(key=lambda item: -of_files[_file(item)])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Only the process that hears of all tests writes, none of pytest-xdist's others."""
    if hasattr(session.config, "workerinput") or not hasattr(session.config, "cache"):
        return
    known = {name: secs for name, secs in _known(session.config).items() if name not in _seconds}
    new = {name: round(secs, 2) for name, secs in _seconds.items() if secs >= _LEAST_SECS}
    session.config.cache.set(SECONDS, known | new)


def _known(config: pytest.Config) -> dict[str, float]:
    cache = getattr(config, "cache", None)
    return dict(cache.get(SECONDS, {})) if cache is not None else {}


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
