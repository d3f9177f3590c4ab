"""Which settings are tried, and which result is better."""

import optuna
import pytest

from control.jobs.specs.profile import ProfileSpec
from jobs.tools.profile.search import Search
from jobs.tools.profile.space import (
    TrialMeasurement,
    TrialSettings,
    grid,
    measurements,
    pareto,
    score,
)

SPEC = ProfileSpec(
    model="m", instances=(1, 2), batch_sizes=(1, 8), delays_us=(0, 500), threads=(1, 2)
)


def sample(per_second: float, p99_ms: float, errors: int = 0) -> TrialMeasurement:
    return TrialMeasurement(per_second, p99_ms / 2, p99_ms, errors, 0)


def test_without_batches_delays_are_one_choice() -> None:
    every = grid(SPEC, batches=True, threads=True)
    assert len(every) == 2 * (1 + 2) * 2
    assert len(grid(SPEC, batches=False, threads=False)) == 2


def test_batches_hold_a_whole_request() -> None:
    spec = ProfileSpec(model="m", batch_sizes=(1, 8))
    assert {one.batch for one in grid(spec, batches=True, threads=True, rows=4)} == {8}


def test_a_missed_bound_is_worse_than_any_kept_one_and_nearer_is_better() -> None:
    spec = ProfileSpec(model="m", latency_ms=10.0)
    kept, near, far = (score(spec, sample(*one)) for one in ((1, 9), (900, 11), (999, 40)))
    assert kept > 0 > near > far
    assert score(spec, sample(100, 1, errors=1)) == float("-inf")


def test_for_latency_the_rate_is_the_bound() -> None:
    spec = ProfileSpec(model="m", goal="latency", per_second=50.0)
    assert score(spec, sample(60, 5)) > score(spec, sample(60, 8)) > 0
    assert score(spec, sample(40, 1)) < 0


def test_settings_under_which_requests_could_not_be_sent_are_worse_the_more_they_were() -> None:
    spec = ProfileSpec(model="m", goal="latency")
    few, many = (sample(60, 1)._replace(missed=missed) for missed in (1, 9))
    assert score(spec, sample(1, 900)) > 0 > score(spec, few) > score(spec, many)


def test_the_front_is_what_no_other_beats_in_both() -> None:
    assert pareto([sample(10, 5), sample(20, 9), sample(8, 6), sample(20, 10)]) == [0, 1]


@pytest.mark.parametrize("combinations", [4, 30, 90])
def test_a_search_measures_no_more_than_its_share(combinations: int) -> None:
    tried = measurements(ProfileSpec(model="m"), combinations, 2)
    assert tried == max(4, int(0.15 * combinations) - 4)
    assert measurements(ProfileSpec(model="m", method="grid"), combinations, 2) == combinations


@pytest.mark.parametrize("best", [(4, 32, 0, 2), (4, 16, 0, 1), (1, 16, 500, 1), (1, 32, 0, 2)])
def test_a_search_climbs_to_a_best_that_is_two_or_three_steps_away_in_seven(
    best: tuple[int, ...],
) -> None:
    every = grid(ProfileSpec(model="m"), batches=True, threads=True)
    search = Search(every, 7, 1, cores=2)
    for settings in search.proposals():
        assert settings not in search.scores
        search.tell(settings, -_steps(every, settings, TrialSettings(*best)))
    assert len(search.scores) == 7
    assert search.best(1) == [TrialSettings(*best)]


def test_all_are_tried_where_so_many_may_be() -> None:
    every = grid(SPEC, batches=True, threads=True)
    search = Search(every, 100, 1, cores=2)
    for settings in search.proposals():
        search.tell(settings, 1.0)
    assert set(search.scores) == set(every)


def _steps(every: list[TrialSettings], one: TrialSettings, other: TrialSettings) -> int:
    """Between the values of both, of all settings together."""
    values = [sorted(set(of)) for of in zip(*every, strict=True)]
    return sum(abs(of.index(a) - of.index(b)) for of, a, b in zip(values, one, other, strict=True))


def test_the_sampler_is_told_the_scores_of_the_settings_that_were_tried() -> None:
    every = grid(SPEC, batches=True, threads=True)
    search = Search(every, len(every) - 1, 1, cores=2)
    for at, settings in enumerate(search.proposals()):
        search.tell(settings, float(at))
    complete = search._study.get_trials(states=[optuna.trial.TrialState.COMPLETE])
    told = {TrialSettings(**one.params): one.value for one in complete}
    assert told == search.scores
