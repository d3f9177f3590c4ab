"""Feedback counts once, for the arm its unit saw, whenever and however often it comes."""

from collections.abc import Mapping
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control.errors import Invalid
from control.experiments.records import feedback as taking
from control.experiments.records.attribution import FeedbackOutcome
from control.experiments.records.feedback import ClientFeedback, ServerMeasurement
from control.experiments.service import ExperimentView, conclude_experiment
from control.experiments.stamp import ArmIdentity, Stamp, unit_key
from control.experiments.sums import Key, Sums
from control.experiments.tables import Exposure, Feedback
from control.experiments.totals import read_sums
from control.sql.database import Database
from control.statistics.histogram import histogram_of
from support.control import ADA, rows
from support.experiments import (
    CONVERSION,
    LATENCY,
    draft,
    exposed,
    moment,
    seen,
    started,
    stopped,
    told,
)
from support.experiments import given as give

COUNTED, WAITING, DUPLICATE = (
    FeedbackOutcome.COUNTED,
    FeedbackOutcome.WAITING,
    FeedbackOutcome.DUPLICATE,
)


def sums_of(database: Database, view: ExperimentView) -> Mapping[Key, Sums]:
    with database.reading() as session:
        return read_sums(session, view.id)


def test_the_first_value_of_a_unit_counts_and_later_ones_are_duplicates(database: Database) -> None:
    view = started(database)
    exposed(database, seen(view, "a", "ada") + seen(view, "b", "grace", "joan"))
    first = [told(view, "ada", 1), told(view, "grace", 0), told(view, "joan", True)]
    assert give(database, *first) == [COUNTED] * 3
    assert give(database, *first, told(view, "grace", 1)) == [DUPLICATE] * 4
    sums = sums_of(database, view)
    assert (sums["a", "conversion"].n, sums["a", "conversion"].ones) == (1, 1)
    assert (sums["b", "conversion"].n, sums["b", "conversion"].ones) == (2, 1)


def test_a_value_that_comes_before_its_unit_is_seen_waits_for_it(database: Database) -> None:
    view = started(database)
    assert give(database, told(view, "ada", 1)) == [WAITING]
    assert give(database, told(view, "ada", 1)) == [DUPLICATE]
    assert sums_of(database, view)["b", "conversion"].n == 0
    exposed(database, seen(view, "b", "ada"))
    assert sums_of(database, view)["b", "conversion"].ones == 1
    assert give(database, told(view, "ada", 1)) == [DUPLICATE]


def test_what_waited_too_early_is_removed_when_its_unit_is_seen(database: Database) -> None:
    view = started(database)
    give(database, told(view, "ada", 1, later_s=-600))
    exposed(database, seen(view, "b", "ada"))
    assert sums_of(database, view)["b", "conversion"].n == 0
    assert rows(database, Feedback) == []


def test_what_has_waited_for_a_day_is_forgotten(database: Database) -> None:
    view = started(database)
    exposed(database, seen(view, "a", "seen"))
    give(database, told(view, "ada", 1), told(view, "seen", 1))
    with database.change(ADA) as tx:
        taking.forget_waiting(tx)
    assert len(rows(database, Feedback)) == 2
    with database.change(ADA) as tx:
        taking.forget_waiting(tx, timedelta(0))
    assert [row.arm for row in rows(database, Feedback)] == ["a"]


def test_sums_add_up_by_key_and_a_retry_adds_nothing(database: Database) -> None:
    view = started(database)
    assert give(database, told(view, "ada", 5, "revenue", key="order1")) == [WAITING]
    exposed(database, seen(view, "b", "ada", "grace"))
    orders = [
        told(view, "ada", 7.5, "revenue", key="order2"),
        told(view, "grace", 2, "revenue", key="order3"),
        told(view, "ada", 7.5, "revenue", key="order2"),
        told(view, "ada", 3, "revenue"),
    ]
    assert give(database, *orders) == [COUNTED, COUNTED, DUPLICATE, FeedbackOutcome.REFUSED]
    moments = sums_of(database, view)["b", "revenue"].moments
    assert (moments.n, moments.mean) == (2, pytest.approx((12.5 + 2) / 2))
    assert moments.m2 == pytest.approx(2 * 5.25**2)


def test_the_largest_value_counts_where_the_metric_says_so(database: Database) -> None:
    view = started(database, metrics=[{**CONVERSION, "repeated": "max"}])
    exposed(database, seen(view, "a", "ada"))
    outcomes = [give(database, told(view, "ada", value))[0] for value in (0, 1, 0, 1)]
    assert outcomes == [COUNTED, COUNTED, DUPLICATE, DUPLICATE]
    sums = sums_of(database, view)["a", "conversion"]
    assert (sums.n, sums.ones, sums.moments.mean) == (1, 1, 1.0)


def test_latencies_told_by_clients_count_one_by_one(database: Database) -> None:
    view = started(database, metrics=[{**LATENCY, "source": "feedback"}])
    exposed(database, seen(view, "a", "ada"))
    sent = [told(view, "ada", 0.1 * n, "latency", key=f"{n}") for n in (1, 2, 2, 3)]
    assert give(database, *sent) == [COUNTED, COUNTED, DUPLICATE, COUNTED]
    histogram = sums_of(database, view)["a", "latency"].histogram
    assert histogram.n == 3
    assert histogram.quantile(0.5) == pytest.approx(0.2, rel=0.03)


def test_what_is_early_late_unknown_or_impossible_says_so(database: Database) -> None:
    view = started(database, window_s=600)
    exposed(database, seen(view, "a", "ada"))
    cases = {
        told(view, "ada", 1, later_s=-301): FeedbackOutcome.EARLY,
        told(
            view, "ada", 1, later_s=601
        ): FeedbackOutcome.REFUSED,  # of the future: ten minutes from now
        told(view, "ada", 2): FeedbackOutcome.REFUSED,
        told(view, "ada", 1, "colour"): FeedbackOutcome.UNKNOWN,
        told(view, "ada", 1, "errors"): FeedbackOutcome.UNKNOWN,
        told(view, "", 1): FeedbackOutcome.UNKNOWN,
        ClientFeedback(
            "conversion", 1, moment(view, 0), experiment="other", unit="ada"
        ): FeedbackOutcome.UNKNOWN,
        ClientFeedback("conversion", 1, moment(view, 0), unit="ada"): FeedbackOutcome.UNKNOWN,
    }
    assert give(database, *cases) == list(cases.values())
    assert rows(database, Feedback) == []


def test_after_its_window_a_value_is_late_and_before_the_conclusion_none_is(
    database: Database,
) -> None:
    view = started(database, window_s=1)
    exposed(database, seen(view, "a", "ada", later_s=-290) + seen(view, "a", "grace"))
    assert give(database, told(view, "ada", 1)) == [FeedbackOutcome.LATE]
    stopped(database)
    assert give(database, told(view, "grace", 1)) == [COUNTED]
    with database.change(ADA) as tx:
        conclude_experiment(tx, "colour", "keep a")
    assert give(database, told(view, "grace", 1)) == [FeedbackOutcome.UNKNOWN]


def test_a_draft_takes_no_feedback(database: Database) -> None:
    view = draft(database)
    row = ClientFeedback("conversion", 1, view.created_at, experiment="colour", unit="ada")
    assert give(database, row) == [FeedbackOutcome.UNKNOWN]


def test_a_stamp_says_who_saw_which_arm_before_the_gateway_does(database: Database) -> None:
    view = started(database)
    at = moment(view, 1)
    unit = unit_key("ada").hex()
    stamp = Stamp(ArmIdentity("shop", "b", "digits", 2, view.id), unit, int(at.timestamp()))
    row = ClientFeedback("conversion", 1, at, stamp=stamp)
    assert give(database, row) == [COUNTED]
    assert [(one.unit, one.arm) for one in rows(database, Exposure)] == [(unit, "b")]
    assert exposed(database, seen(view, "b", "ada")).known == 1
    assert sums_of(database, view)["b", "conversion"].ones == 1
    nobody = Stamp(ArmIdentity("shop", "b", "digits", 2, view.id), "", int(at.timestamp()))
    assert give(database, ClientFeedback("conversion", 1, at, stamp=nobody)) == [
        FeedbackOutcome.UNKNOWN
    ]


def test_feedback_for_a_model_counts_in_every_experiment_that_has_it(database: Database) -> None:
    one, two = started(database, "one", "x"), started(database, "two", "y")
    exposed(database, seen(one, "a", "ada") + seen(two, "b", "grace"))
    at = moment(two, 0)
    ada, grace, other = (
        ClientFeedback("conversion", 1, at, model=model, unit=unit)
        for model, unit in (("digits", "ada"), ("digits", "grace"), ("letters", "ada"))
    )
    assert give(database, ada, grace, other) == [COUNTED, COUNTED, FeedbackOutcome.UNKNOWN]
    assert sums_of(database, one)["a", "conversion"].n == 1
    assert sums_of(database, two)["b", "conversion"].n == 1


def test_what_gateways_measure_is_added(database: Database) -> None:
    view = started(database)
    latencies = histogram_of([0.01, 0.02, 0.04])
    batch = [
        ServerMeasurement(view.id, "errors", "a", n=100, ones=3),
        ServerMeasurement(view.id, "errors", "a", n=50, ones=1),
        ServerMeasurement(view.id, "latency", "b", latencies=latencies),
        ServerMeasurement(view.id, "errors", "a", n=1, ones=2),
        ServerMeasurement(view.id, "errors", "c", n=1),
        ServerMeasurement(view.id, "conversion", "a", n=1),
        ServerMeasurement("none", "errors", "a", n=1),
    ]
    with database.change(ADA) as tx:
        assert taking.measured(tx, batch) == 3
    sums = sums_of(database, view)
    assert (sums["a", "errors"].n, sums["a", "errors"].ones) == (150, 4)
    assert sums["b", "latency"].histogram.counts == latencies.counts


def test_a_single_value_is_refused_with_the_reason(database: Database) -> None:
    view = started(database)
    for row, said in (
        (told(view, "ada", 1, "colour"), "takes no feedback for 'colour'; it takes conversion"),
        (told(view, "ada", 2), "'conversion' cannot be 2; give 0, 1, true or false"),
        (told(view, "ada", 2, "revenue"), "give each a key of its own"),
    ):
        with pytest.raises(Invalid, match=said):
            taking.check(view, row)
    taking.check(view, told(view, "ada", 1))


def test_a_batch_has_a_limit(database: Database) -> None:
    view = started(database)
    with pytest.raises(ValueError, match="at most 2000"):
        give(database, *[told(view, "ada", 1)] * 2_001)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.permutations(range(12)), st.integers(1, 12), st.integers(0, 2**30))
def test_the_sums_do_not_depend_on_the_order_of_exposures_and_feedback(
    database: Database, order: list[int], size: int, tag: int
) -> None:
    name = f"e{tag}-{size}-{'-'.join(map(str, order))}"[:60]
    view = started(database, name, name)
    steps = [("see", unit) for unit in "pqrs"] + [
        ("pay", f"{unit}{number}") for unit in "pqrs" for number in (1, 2)
    ]
    for place in order + order[:size]:
        what, unit = steps[place]
        if what == "see":
            exposed(database, seen(view, "a" if unit < "r" else "b", unit))
        else:
            row = told(view, unit[0], float(unit[1]), "revenue", key=unit)
            assert give(database, row)[0] in (COUNTED, WAITING, DUPLICATE)
    sums = sums_of(database, view)
    for arm in "ab":
        moments = sums[arm, "revenue"].moments
        assert (moments.n, moments.mean) == (2, pytest.approx(3.0))
        assert moments.m2 == pytest.approx(0.0, abs=1e-9)
    stopped(database, name)
