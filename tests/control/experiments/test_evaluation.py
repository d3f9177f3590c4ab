"""What is said of an experiment: seldom wrong however often asked, right about a real effect."""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy
import pytest

from control.experiments.analysis import view_of_analysis
from control.experiments.analysis_text import sentence, verdict
from control.experiments.evaluation import Analysis, ExperimentDecision, judge
from control.experiments.sums import UNITS, Key, Sums
from control.experiments.terms import ExperimentTerms, parse_terms
from control.statistics.histogram import Histogram
from control.statistics.sequential import Moments
from control.views import to_json
from support.experiments import ARMS, CONVERSION, ERRORS, LATENCY, REVENUE, TERMS

EXPERIMENTS, LOOKS, BATCH = 2_000, 25, 100


def sums(n: int, ones: int = 0, moments: Moments | None = None) -> Sums:
    return Sums(n, ones, moments or Moments(n, ones / n if n else 0.0), Histogram())


def of_rates(a: tuple[int, int], b: tuple[int, int], **terms: Any) -> Analysis:
    """Conversions and units of a and b."""
    read = parse_terms({**TERMS, "metrics": [CONVERSION], **terms})
    return judge(read, _rates(a, b))


def _rates(a: tuple[int, int], b: tuple[int, int]) -> dict[Key, Sums]:
    counted = {("a", UNITS): sums(a[1]), ("b", UNITS): sums(b[1])}
    told = {("a", "conversion"): sums(a[0], a[0]), ("b", "conversion"): sums(b[0], b[0])}
    return counted | told


@pytest.mark.parametrize(
    ("a", "b", "decision", "said"),
    [
        ((0, 0), (0, 0), ExperimentDecision.OPEN, "Nobody has seen the experiment yet"),
        (
            (50, 500),
            (52, 500),
            ExperimentDecision.OPEN,
            "no difference found yet, after 20% of the planned",
        ),
        (
            (250, 2_500),
            (400, 2_500),
            ExperimentDecision.BETTER,
            "b is better than a in conversion: take b.",
        ),
        (
            (400, 2_500),
            (250, 2_500),
            ExperimentDecision.WORSE,
            "b is worse than a in conversion: keep a.",
        ),
        (
            (5_000, 50_000),
            (5_000, 50_000),
            ExperimentDecision.SAME,
            "differ by nothing that matters",
        ),
        ((250, 2_500), (260, 2_500), ExperimentDecision.OPEN, "plan a larger experiment"),
    ],
)
def test_the_verdict_is_words(
    a: tuple[int, int], b: tuple[int, int], decision: ExperimentDecision, said: str
) -> None:
    found = of_rates(a, b)
    assert found.of("b", "conversion").decision is decision
    assert said in verdict(found)


def test_units_without_feedback_did_not_convert() -> None:
    found = of_rates((30, 600), (66, 600)).of("b", "conversion")
    assert (found.control_value, found.value, found.n) == (0.05, 0.11, 1_200)
    assert found.estimate == pytest.approx(0.06)


def test_where_silence_says_nothing_only_feedback_counts() -> None:
    metric = {**CONVERSION, "missing": "ignored"}
    counted = _rates((0, 600), (0, 600))
    counted["b", "conversion"] = sums(10, 4)
    found = judge(parse_terms({**TERMS, "metrics": [metric]}), counted).of("b", "conversion")
    assert (found.value, found.n) == (0.4, 10)
    assert math.isnan(found.control_value)
    assert sentence(found, "a") == "conversion: nothing to compare yet"


def test_a_mean_of_all_units_has_zeros_for_the_silent_ones() -> None:
    metric = {**REVENUE, "missing": "zero"}
    counted: Mapping[Key, Sums] = {
        ("a", UNITS): sums(100),
        ("b", UNITS): sums(100),
        ("a", "revenue"): sums(50, 0, Moments(50, 4.0, 50.0)),
        ("b", "revenue"): sums(50, 0, Moments(50, 8.0, 50.0)),
    }
    found = judge(parse_terms({**TERMS, "metrics": [metric]}), counted).of("b", "revenue")
    assert (found.control_value, found.value, found.n) == (2.0, 4.0, 200)


def test_less_is_better_where_the_metric_says_so() -> None:
    read = parse_terms({**TERMS, "metrics": [ERRORS]})
    counted = {("a", "errors"): sums(4_000, 400), ("b", "errors"): sums(4_000, 100)}
    found = judge(read, counted)
    assert found.of("b", "errors").decision is ExperimentDecision.BETTER
    said = sentence(found.of("b", "errors"), "a")
    assert said.startswith("errors: b is better than a, 7.5 points lower (-")


def test_latency_is_compared_as_a_ratio() -> None:
    read = parse_terms({**TERMS, "metrics": [LATENCY]})
    counted = {}
    for arm, seconds in ("a", 0.01), ("b", 0.02):
        histogram = Histogram()
        histogram.add(seconds, times=3_000)
        counted[arm, "latency"] = Sums(3_000, 0, Moments(), histogram)
    found = judge(read, counted)
    comparison = found.of("b", "latency")
    assert comparison.decision is ExperimentDecision.WORSE
    assert comparison.interval.has(2.0)
    assert "b is worse than a, 100% slower (+9" in sentence(comparison, "a")
    assert "keep a" in verdict(found)


def test_arms_without_their_share_are_not_to_be_trusted() -> None:
    found = of_rates((250, 2_300), (400, 2_700))
    assert found.sample_ratio.mismatch
    assert verdict(found).startswith("Do not trust these numbers")
    assert "a 2,300, b 2,700" in verdict(found)


def test_units_that_crossed_are_warned_of() -> None:
    counted = _rates((250, 2_500), (400, 2_500))
    counted["a", UNITS] = sums(2_500, 100)
    found = judge(parse_terms({**TERMS, "metrics": [CONVERSION]}), counted)
    assert found.crossed == 0.02
    assert "2.0% of the units saw more than one arm" in verdict(found)


def test_more_comparisons_ask_for_more_evidence() -> None:
    alone = of_rates((250, 2_500), (320, 2_500)).of("b", "conversion")
    arms = [*ARMS, {"name": "c"}, {"name": "d"}]
    among = of_rates((250, 2_500), (320, 2_500), arms=arms).of("b", "conversion")
    assert alone.p_value == among.p_value < 0.05
    assert alone.decision is ExperimentDecision.BETTER
    assert among.adjusted == pytest.approx(3 * alone.adjusted)


def test_better_in_one_and_worse_in_another_is_left_to_people() -> None:
    read = parse_terms({**TERMS, "metrics": [CONVERSION, ERRORS]})
    errors = {("a", "errors"): sums(4_000, 100), ("b", "errors"): sums(4_000, 400)}
    found = judge(read, _rates((250, 2_500), (400, 2_500)) | errors)
    assert verdict(found) == "b is better in conversion but worse in errors: weigh them."


def test_what_is_better_while_something_is_open_is_no_reason_to_stop_yet() -> None:
    read = parse_terms({**TERMS, "metrics": [CONVERSION, ERRORS]})
    found = judge(read, _rates((250, 2_500), (400, 2_500)))
    assert verdict(found) == "b is better in conversion; errors is not clear yet."


def test_an_analysis_is_json_whatever_is_in_it() -> None:
    for found in of_rates((0, 0), (0, 0)), judge(parse_terms(TERMS), {}):
        text = to_json(view_of_analysis(found))
        assert json.loads(text)["comparisons"][0]["value"] is None


def drawn(
    draw: numpy.random.Generator, terms: ExperimentTerms, lift: float
) -> list[dict[Key, Sums]]:
    """What one experiment's sums are at each look; b converts `lift` more often."""
    looks: list[dict[Key, Sums]] = []
    rates = {"a": 0.1, "b": 0.1 + lift}
    moments = dict.fromkeys(rates, Moments())
    ones = dict.fromkeys(rates, 0)
    units = dict.fromkeys(rates, 0)
    for _ in range(LOOKS):
        share = int(draw.binomial(2 * BATCH, 0.5))
        found: dict[Key, Sums] = {}
        for arm, count in ("a", share), ("b", 2 * BATCH - share):
            units[arm] += count
            ones[arm] += int(draw.binomial(count, rates[arm]))
            spent = draw.gamma(2.0, 5.0, count)
            m2 = float(((spent - spent.mean()) ** 2).sum())
            moments[arm] = moments[arm].merged(Moments(count, float(spent.mean()), m2))
            found[arm, UNITS] = sums(units[arm])
            found[arm, "conversion"] = sums(ones[arm], ones[arm])
            found[arm, "revenue"] = sums(units[arm], 0, moments[arm])
        looks.append(found)
    return looks


def called(terms: ExperimentTerms, looks: list[dict[Key, Sums]]) -> tuple[bool, bool]:
    """Whether anything was ever called different, and whether the shares ever were suspicious."""
    different = mismatch = False
    for look in looks:
        found = judge(terms, look)
        different |= any(
            one.decision in (ExperimentDecision.BETTER, ExperimentDecision.WORSE)
            for one in found.comparisons
        )
        mismatch |= found.sample_ratio.mismatch
    return different, mismatch


@pytest.mark.slow
def test_two_thousand_experiments_without_a_difference_are_seldom_called_different() -> None:
    terms = parse_terms({**TERMS, "metrics": [CONVERSION, REVENUE]})
    draw = numpy.random.default_rng(20261121)
    results = [called(terms, drawn(draw, terms, 0.0)) for _ in range(EXPERIMENTS)]
    different, mismatch = (sum(column) / EXPERIMENTS for column in zip(*results, strict=True))
    print(f"A/A, {LOOKS} looks: different {different:.2%}, sample ratio {mismatch:.2%}")
    assert different <= 0.05
    assert mismatch <= 0.02


@pytest.mark.slow
def test_experiments_with_a_difference_mostly_find_it() -> None:
    terms = parse_terms({**TERMS, "metrics": [CONVERSION, REVENUE]})
    draw = numpy.random.default_rng(20261121)
    found = sum(called(terms, drawn(draw, terms, 0.05))[0] for _ in range(300)) / 300
    print(f"10 % against 15 %, {2 * BATCH * LOOKS} units: found in {found:.1%}")
    assert found >= 0.9
