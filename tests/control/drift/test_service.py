"""Watched models as rows, on both databases: terms, references, windows, verdicts, events."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import func, select

from control import loads, servers
from control.desired_rows import desired
from control.drift import findings, service, windows
from control.drift.numeric import counted
from control.drift.points import DriftWindow, FeatureCounts, VersionDrift
from control.drift.profile import to_profile, write_profile
from control.drift.tables import DriftFinding, DriftWindowRow
from control.drift.terms import MOST_MODELS, DriftTerms
from control.drift.verdict import judge_drift
from control.errors import Conflict, Invalid, NotFound
from control.problems.service import list_problems
from control.sql.database import SYSTEM, Database
from support.control import ADA, told

TERMS = DriftTerms(min_sample=100)
NOW = int(datetime.now(UTC).timestamp())


def counts(n: int, mean: float = 0.0, seed: int = 1, profile: str = "") -> VersionDrift:
    drawn = random.Random(seed)
    values = [drawn.gauss(mean, 1) for _ in range(n)]
    features = (FeatureCounts("x", "input", counted(values)),)
    return VersionDrift("digits", 1, n, features, 0, profile)


def serve(database: Database, *models: str) -> None:
    with database.change(SYSTEM) as tx:
        servers.register(tx, "srv", "boot", "0.1", "http://127.0.0.1:1")
        loads.record(tx, "srv", [(model, 1, "READY", "") for model in models])


@pytest.fixture
def watched(database: Database) -> Database:
    serve(database, "digits")
    with database.change(ADA) as tx:
        service.watch(tx, "digits", TERMS)
    return database


def store(database: Database, rows: Sequence[VersionDrift], at: int, server: str = "srv") -> None:
    with database.change(SYSTEM) as tx:
        window = DriftWindow(server, "g1", at, 60, tuple(rows))
        windows.store_window(tx, window)
        service.keep_profiles(tx, window.rows)


def size(database: Database) -> int:
    with database.reading() as session:
        return session.scalar(select(func.count()).select_from(DriftWindowRow)) or 0


def read(database: Database, since: float, until: float) -> VersionDrift:
    with database.reading() as session:
        return windows.read_windows(session, "digits", 1, since, until)


def test_gateways_are_told_of_watched_models(watched: Database) -> None:
    with watched.reading() as session:
        (rule,) = desired(session, datetime.now(UTC)).drift
    assert (rule.model, rule.percent, rule.per_s) == ("digits", 100.0, 20.0)


def test_a_model_that_no_server_has_and_one_too_many_are_refused(database: Database) -> None:
    serve(database, *(f"m{number}" for number in range(MOST_MODELS + 1)))
    with database.change(ADA) as tx:
        for number in range(MOST_MODELS):
            service.watch(tx, f"m{number}", TERMS)
        with pytest.raises(Conflict, match="16 models is watched already"):
            service.watch(tx, f"m{MOST_MODELS}", TERMS)
        with pytest.raises(NotFound, match="no server has a model 'absent'"):
            service.watch(tx, "absent", TERMS)


def test_a_window_that_is_sent_again_is_kept_once(watched: Database) -> None:
    for _ in range(3):
        store(watched, [counts(50)], NOW - 600)
    assert size(watched) == 1


def test_windows_of_models_nobody_watches_are_left(watched: Database) -> None:
    other = VersionDrift("other", 1, 5, counts(5).features)
    store(watched, [other], NOW - 600)
    assert size(watched) == 0


def test_an_hour_that_is_over_becomes_one_row_with_all_that_was_counted(watched: Database) -> None:
    hour = NOW - NOW % 3600 - 7200 - windows.MERGE_AFTER_S
    for minute in range(5):
        store(watched, [counts(20, seed=minute)], hour + 60 * minute, f"srv{minute % 2}")
    before = read(watched, hour, hour + 3600)
    with watched.change(SYSTEM) as tx:
        assert windows.merge_hour(tx)
        assert not windows.merge_hour(tx)
    assert size(watched) == 1
    assert read(watched, hour, hour + 3600) == before


def test_a_late_window_is_merged_into_its_hour(watched: Database) -> None:
    hour = NOW - NOW % 3600 - 7200 - windows.MERGE_AFTER_S
    for minute in (1, 2):
        store(watched, [counts(20, seed=minute)], hour + 60 * minute)
        with watched.change(SYSTEM) as tx:
            assert windows.merge_hour(tx)
    assert size(watched) == 1
    assert read(watched, hour, hour + 3600).requests == 40


def test_the_oldest_windows_go_until_the_rest_fits(watched: Database) -> None:
    for minute in range(10):
        store(watched, [counts(200, seed=minute)], NOW - 6000 + 60 * minute)
    with watched.change(SYSTEM) as tx:
        limit = windows.windows_size(tx.session) // 2
        windows.forget_windows(tx, limit)
        assert 0 < windows.windows_size(tx.session) <= limit
    assert read(watched, NOW - 6000, NOW - 5700).requests == 0


def test_a_reference_outlives_its_windows(watched: Database) -> None:
    store(watched, [counts(500)], NOW - 600)
    since = datetime.fromtimestamp(NOW - 700, UTC)
    with watched.change(ADA) as tx:
        view = service.refer_to_window(tx, "digits", 1, since, tx.now)
        windows.forget_windows(tx, 0)
    assert view.reference.kind == "window"
    with watched.reading() as session:
        (one,) = service.watched_models(session)
        found, _ = service.reference_of(session, one, 7)
    assert found is not None
    assert found.features == counts(500).features


def test_a_stretch_with_too_little_is_no_reference(watched: Database) -> None:
    store(watched, [counts(99)], NOW - 600)
    since = datetime.now(UTC) - timedelta(hours=1)
    with (
        watched.change(ADA) as tx,
        pytest.raises(Invalid, match="got 99 values of each feature in that time; a reference"),
    ):
        service.refer_to_window(tx, "digits", 1, since, tx.now)


def test_a_pushed_profile_is_the_reference_of_its_version_alone(watched: Database) -> None:
    with watched.change(ADA) as tx:
        service.refer_to_pushed(tx, "digits")
    text = write_profile(to_profile(counts(500))).decode()
    store(watched, [counts(10, profile=text)], NOW - 600)
    with watched.reading() as session:
        (rule,) = service.drift_rules(session)
        assert rule.profile
    assert reference(watched, 1)[0] is not None
    assert reference(watched, 2) == (None, "it came without a drift_profile.json")
    with watched.change(ADA) as tx:
        service.refer_to_pushed(tx, "digits")  # gateways will not send it again
    assert reference(watched, 1)[0] is not None


def reference(database: Database, version: int) -> tuple[VersionDrift | None, str]:
    with database.reading() as session:
        (one,) = service.watched_models(session)
        return service.reference_of(session, one, version)


def test_a_profile_that_cannot_be_used_is_a_problem_of_its_version(watched: Database) -> None:
    with watched.change(ADA) as tx:
        service.refer_to_pushed(tx, "digits")
    text = '{"format": 1, "features": [{"name": "x"}]}'
    store(watched, [counts(10, profile=text)], NOW - 600)
    found, why = reference(watched, 1)
    assert (found, why) == (
        None,
        "drift_profile.json: feature 'x': give one of edges, buckets and categories, not none",
    )
    with watched.reading() as session:
        (row,) = list_problems(session, datetime.now(UTC))
        assert judge_drift(found, counts(10), TERMS, why).words == why
    assert row.title == "digits version 1 has a drift profile that cannot be used"
    assert row.reason == why
    store(watched, [counts(10, profile=write_profile(to_profile(counts(500))).decode())], NOW)
    with watched.reading() as session:
        assert list_problems(session, datetime.now(UTC)) == []


def test_a_profile_that_cannot_be_used_is_no_problem_once_its_version_is_gone(
    watched: Database,
) -> None:
    with watched.change(ADA) as tx:
        service.refer_to_pushed(tx, "digits")
    store(watched, [counts(10, profile="{}")], NOW - 600)
    with watched.reading() as session:
        (found,) = service.unusable_profiles(session)
        assert (found.model, found.version) == ("digits", 1)
    with watched.change(SYSTEM) as tx:
        loads.record(tx, "srv", [("digits", 2, "READY", "")])
    with watched.reading() as session:
        assert service.unusable_profiles(session) == []
        assert list_problems(session, datetime.now(UTC)) == []


def test_drift_is_an_event_once_and_its_end_another(watched: Database) -> None:
    def judged(mean: float, seed: int) -> None:
        with watched.change(SYSTEM) as tx:
            current = counts(500, mean, seed)
            verdict = judge_drift(counts(500), current, TERMS)
            findings.record_verdict(tx, current, verdict, TERMS)

    for seed, mean in enumerate((0, 2, 2, 0, 0, 0), 2):
        judged(mean, seed)
    drifts = [kind for kind, _ in told(watched) if kind.startswith("model.drift")]
    assert drifts == ["model.drifted"]
    with watched.reading() as session:
        assert [one.version for one in findings.raised_drift(session)] == [1]
    judged(0, 8)
    drifts = [kind for kind, _ in told(watched) if kind.startswith("model.drift")]
    assert drifts == ["model.drifted", "model.drift_ended"]


def test_drift_of_which_nothing_was_counted_for_a_while_is_not_told_again(
    watched: Database,
) -> None:
    def judged() -> None:
        with watched.change(SYSTEM) as tx:
            current = counts(500, 2, 3)
            verdict = judge_drift(counts(500), current, TERMS)
            findings.record_verdict(tx, current, verdict, TERMS)

    def nothing_counted() -> None:
        with watched.change(SYSTEM) as tx:
            findings.forget_findings(tx, "digits", ())

    judged()
    nothing_counted()
    judged()
    assert [kind for kind, _ in told(watched)].count("model.drifted") == 1
    with watched.change(SYSTEM) as tx:
        (row,) = tx.session.scalars(select(DriftFinding))
        row.at -= findings.KEEP_RAISED + timedelta(seconds=1)
    nothing_counted()
    with watched.reading() as session:
        assert findings.raised_drift(session) == []


def test_unwatching_forgets_all_but_the_audit(watched: Database) -> None:
    store(watched, [counts(500)], NOW - 600)
    with watched.change(ADA) as tx:
        service.unwatch(tx, "digits")
    assert size(watched) == 0
    with watched.reading() as session:
        assert service.list_watches(session) == []
        with pytest.raises(NotFound, match="modelyard drift watch digits"):
            service.report_of(session, "digits")
    assert [kind for kind, _ in told(watched)][-1] == "drift.unwatched"
