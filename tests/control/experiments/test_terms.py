"""Terms are read strictly: what cannot be is refused with what can."""

from typing import Any

import pytest

from control.errors import Invalid
from control.experiments.metrics import MetricSource, MissingValueRule, RepeatedValueRule, value_of
from control.experiments.namespaces import free_range
from control.experiments.terms import parse_terms
from support.experiments import ARMS, CONVERSION, ERRORS, LATENCY, REVENUE, TERMS


def test_terms_are_read_with_their_defaults_and_written_back() -> None:
    terms = parse_terms(TERMS)
    assert (terms.control, terms.alpha, terms.horizon) == ("a", 0.05, 5_000)
    assert terms.shares == {"a": 1.0, "b": 1.0}
    conversion, revenue, latency, errors = terms.metrics
    assert (conversion.source, conversion.missing) == (MetricSource.FEEDBACK, MissingValueRule.ZERO)
    assert (revenue.missing, revenue.repeated) == (MissingValueRule.IGNORED, RepeatedValueRule.SUM)
    assert (latency.source, latency.repeated) == (MetricSource.SERVER, RepeatedValueRule.EACH)
    assert (errors.source, errors.missing) == (MetricSource.SERVER, MissingValueRule.IGNORED)
    assert parse_terms(terms.as_json()) == terms


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"arms": ARMS[:1]}, "arms must be a list of 2 to 10 objects"),
        ({"arms": "ab"}, "arms must be a list"),
        ({"arms": [1, 2]}, "arms must be a list"),
        ({"arms": [ARMS[0], ARMS[0]]}, "arms has 'a' twice"),
        ({"arms": [ARMS[0], {"name": "B"}]}, "'B' cannot name an arm"),
        ({"arms": [ARMS[0], {"name": "b", "share": 0}]}, "arm 'b': share cannot be 0"),
        ({"arms": [ARMS[0], {"name": "b", "version": -1}]}, "arm 'b': version cannot be -1"),
        ({"arms": [ARMS[0], {"name": "b", "model": "x\n"}]}, "arm 'b': model cannot be"),
        ({"metrics": []}, "metrics must be a list of 1 to 20 objects"),
        ({"metrics": [REVENUE, REVENUE]}, "metrics has 'revenue' twice"),
        ({"alpha": 0}, "alpha cannot be 0; give a number from 0.0001 to 0.2"),
        ({"alpha": True}, "alpha cannot be True"),
        ({"alpha": float("nan")}, "alpha cannot be nan"),
        ({"horizon": 10}, "horizon cannot be 10; give a whole number from 100"),
        ({"horizon": 1e3}, "horizon cannot be 1000.0"),
        ({"namespace": "A"}, "'A' cannot name a namespace"),
        ({"share_percent": 50}, "a share_percent needs a namespace"),
        ({"namespace": "page", "share_percent": 101}, "share_percent cannot be 101"),
        ({"window_s": 0}, "window_s cannot be 0"),
        ({"colour": 1}, "an experiment has no 'colour'; it has arms, metrics"),
    ],
)
def test_terms_that_cannot_be_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(Invalid, match=said.replace("(", r"\(")):
        parse_terms({**TERMS, **change})


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ({**CONVERSION, "name": "X"}, "'X' cannot name a metric"),
        ({**CONVERSION, "kind": "median"}, "kind cannot be 'median'; give 'proportion' or 'mean'"),
        ({**CONVERSION, "direction": None}, "direction cannot be None; give 'up' or 'down'"),
        ({**CONVERSION, "minimal_effect": 0}, "minimal_effect cannot be 0"),
        ({**CONVERSION, "repeated": "sum"}, "repeated cannot be 'sum'; give 'first' or 'max'"),
        ({**CONVERSION, "quantile": 0.5}, "a proportion has no quantile"),
        ({**CONVERSION, "color": 1}, "metric 'conversion' has no 'color'; it has name, kind"),
        ({**REVENUE, "source": "server"}, "source cannot be 'server'; give 'feedback'"),
        ({**LATENCY, "quantile": None}, "quantile cannot be None; give e.g. 0.5"),
        ({**LATENCY, "quantile": 1.0}, "quantile cannot be 1.0"),
        ({**ERRORS, "missing": "zero"}, "missing cannot be 'zero'; give 'ignored'"),
    ],
)
def test_a_metric_that_cannot_be_is_refused(metric: dict[str, Any], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        parse_terms({**TERMS, "metrics": [metric]})


@pytest.mark.parametrize(
    ("metric", "good", "bad"),
    [
        (CONVERSION, [0, 1, True, 1.0], [2, 0.5, "1", None, float("nan")]),
        (REVENUE, [-3, 2.5, 0], [True, "3", float("inf"), float("nan"), 10**400, [1]]),
        (LATENCY, [0, 0.25], [-1, "x", float("nan")]),
    ],
)
def test_a_value_that_the_metric_cannot_have_is_refused(
    metric: dict[str, Any], good: list[Any], bad: list[Any]
) -> None:
    parsed = parse_terms({**TERMS, "metrics": [metric]}).metrics[0]
    assert [value_of(parsed, value) for value in good] == [float(value) for value in good]
    for value in bad:
        with pytest.raises(Invalid, match=f"'{metric['name']}' cannot be"):
            value_of(parsed, value)


def test_the_first_gap_that_is_wide_enough_is_taken() -> None:
    assert free_range(100, []) == range(100)
    assert free_range(100, [range(50, 200), range(300, 400)]) == range(200, 300)
    assert free_range(101, [range(50, 200), range(300, 400)]) == range(400, 501)
    assert free_range(9_000, [range(1_001)]) is None
