"""The health of a gateway's versions: load state now, and what was found in their windows."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from control.health import VersionHealth
from control.series.points import SeriesPoint, SeriesSubject, SeriesWindow, SubjectPoint
from server.health import kept
from server.health.kept import KeptHealth
from server.health.monitor import HealthMonitor
from server.health.policy import HealthBounds
from server.served_version import (
    LOADING_ON_DEMAND,
    RESTARTING,
    STANDBY,
    ServedVersion,
    ServingState,
    VersionRow,
)
from support.grpc import IDENTITY, put

AT = 1_000_000.0
READY = VersionRow("identity", 1, ServingState.READY, "")
FAILS = SeriesPoint(failed={"BACKEND": 61})


class Versions:
    """A fleet whose rows and loaded versions a test sets."""

    def __init__(self, served: ServedVersion) -> None:
        self.served: Sequence[ServedVersion] = [served]
        self.rows: Sequence[VersionRow] = [READY]
        self.monitor = self.again(KeptHealth())

    def again(self, known: KeptHealth) -> HealthMonitor:
        self.monitor = HealthMonitor(lambda: self.served, lambda: self.rows, HealthBounds(), known)
        return self.monitor

    def close(self, at: float, point: SeriesPoint | None) -> None:
        """A window that ends `at`."""
        subject = SeriesSubject("version", "identity", 1)
        rows = () if point is None else (SubjectPoint(subject, point),)
        for _ in self.monitor.close(SeriesWindow("s", "b", int(at) - 10, rows), at):
            pass

    def health(self, at: float) -> VersionHealth:
        ((_, found),) = self.monitor.rows(at)
        return found


@pytest.fixture
def made() -> Iterator[Callable[[], ServedVersion]]:
    """Makes a loaded version; all are closed at the end."""
    with asyncio.Runner() as runner:
        served: list[ServedVersion] = []

        def make() -> ServedVersion:
            async def on_loop() -> ServedVersion:
                return put(IDENTITY)

            served.append(runner.run(on_loop()))
            return served[-1]

        yield make
        for one in served:
            runner.run(one.scheduler.close())


Make = Callable[[], ServedVersion]


def test_a_version_is_what_its_load_state_says_until_it_fails_requests(made: Make) -> None:
    fleet = Versions(made())
    assert fleet.health(AT) == VersionHealth("READY", "ok", "", AT)
    fleet.close(AT + 10, FAILS)
    failing = fleet.health(AT + 11)
    assert (failing.state, failing.code, failing.since) == ("FAILING", "errors", AT)
    assert failing.reason.startswith("61 of 61 requests failed")
    fleet.close(AT + 100, SeriesPoint(succeeded=100))
    assert fleet.health(AT + 101) == VersionHealth("READY", "ok", "", AT)


def test_what_clients_got_wrong_or_cancelled_is_no_failure(made: Make) -> None:
    fleet = Versions(made())
    wrong = SeriesPoint(10, {"BACKEND": 30, "CANCELED": 50}, client_errors=30)
    fleet.close(AT + 10, wrong)
    assert fleet.health(AT + 10).state == "READY"


def test_a_load_state_is_told_since_it_is_so(made: Make) -> None:
    fleet = Versions(made())
    fleet.rows = [VersionRow("identity", 1, ServingState.LOADING, "")]
    assert fleet.health(AT).since == fleet.health(AT + 5).since == AT
    fleet.rows = [VersionRow("identity", 1, ServingState.FAILED, "no weights")]
    assert fleet.health(AT + 6) == VersionHealth("FAILED", "load_error", "no weights", AT + 6)
    fleet.rows = [VersionRow("identity", 1, ServingState.FAILED, "no config")]
    assert fleet.health(AT + 9) == VersionHealth("FAILED", "load_error", "no config", AT + 6)
    fleet.rows = [VersionRow("identity", 1, ServingState.FAILED, RESTARTING)]
    assert fleet.health(AT + 9).code == "no_instance"
    fleet.rows = [VersionRow("identity", 1, ServingState.READY, "serving what was before")]
    assert fleet.health(AT + 9).code == "reload_failed"


def test_a_version_that_cannot_be_loaded_or_was_unloaded_is_that_whatever_it_answered(
    made: Make,
) -> None:
    fleet = Versions(made())
    fleet.close(AT + 10, FAILS)
    for state in (ServingState.LOADING, ServingState.UNLOADED, ServingState.FAILED):
        fleet.rows = [VersionRow("identity", 1, state, "")]
        assert fleet.health(AT + 11).state == state.value


def test_another_load_of_a_version_begins_anew(made: Make) -> None:
    fleet = Versions(made())
    fleet.close(AT + 10, FAILS)
    fleet.served = [made()]
    fleet.close(AT + 20, None)
    assert fleet.health(AT + 20).state == "READY"


def test_a_restart_of_the_gateway_forgets_nothing(made: Make, tmp_path: Path) -> None:
    fleet = Versions(made())
    fleet.close(AT + 10, FAILS)
    before = fleet.health(AT + 11)
    kept.write(tmp_path, fleet.monitor.kept())
    fleet.again(kept.read(tmp_path))
    fleet.served = []
    fleet.close(AT + 20, None)  # it is not loaded yet
    fleet.served = [made()]
    fleet.close(AT + 30, None)
    assert fleet.health(AT + 31) == before


def test_a_restart_with_other_files_forgets_what_was_found(made: Make) -> None:
    fleet = Versions(made())
    fleet.close(AT + 10, FAILS)
    fleet.again(fleet.monitor.kept())
    other = made()
    other.version = replace(other.version, digest="another")
    fleet.served = [other]
    fleet.close(AT + 20, None)
    assert fleet.health(AT + 21).state == "READY"


def test_what_an_unloaded_version_was_found_to_do_is_forgotten(made: Make) -> None:
    fleet = Versions(made())
    fleet.close(AT + 10, FAILS)
    fleet.served = []
    fleet.close(AT + 20, None)
    assert fleet.monitor.kept() == KeptHealth()


def test_a_damaged_file_is_as_none(tmp_path: Path) -> None:
    assert kept.read(tmp_path) == KeptHealth()
    (tmp_path / kept.NAME).write_bytes(b"\xc1")
    assert kept.read(tmp_path) == KeptHealth()


def test_a_version_that_loads_on_demand_is_unloaded_and_not_degraded(
    made: Callable[[], ServedVersion],
) -> None:
    versions = Versions(made())
    versions.rows = [READY._replace(reason=STANDBY)]
    assert versions.health(AT) == VersionHealth("UNLOADED", "unloaded", STANDBY, AT)
    versions.rows = [READY._replace(reason=LOADING_ON_DEMAND)]
    assert versions.health(AT + 5).state == "LOADING"
    versions.rows = [READY]
    assert versions.health(AT + 6).state == "READY"
