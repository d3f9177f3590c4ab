"""Units in the wrong arm: found where something loses them, and not where chance does."""

import numpy as np
import pytest

from control.rollouts.assignment_counts import AssignmentCount, mismatch

WEIGHTS = (100, 500, 2_500, 5_000)


def assignments(draw: np.random.Generator, units: int, kept: float) -> list[AssignmentCount]:
    """Of each weight `units` new ones; of the candidate's only a share of `kept` is seen."""
    found = []
    for weight in WEIGHTS:
        candidate = int(draw.binomial(units, weight / 10_000))
        seen = int(draw.binomial(candidate, kept))
        found.append(AssignmentCount("s", weight, units - candidate + seen, seen))
    return found


def test_chance_is_no_mismatch_however_often_one_looks() -> None:
    draw = np.random.default_rng(5)
    called = 0
    for _ in range(1_000):
        totals = {weight: [0, 0] for weight in WEIGHTS}
        wrong = False
        for weight in WEIGHTS:
            for _ in range(20):
                totals[weight][0] += 100
                totals[weight][1] += int(draw.binomial(100, weight / 10_000))
                wrong |= bool(
                    mismatch([[AssignmentCount("s", w, *met) for w, met in totals.items()]])
                )
        called += wrong
    assert called <= 5


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.7])
def test_units_that_the_candidate_loses_are_noticed(kept: float) -> None:
    draw = np.random.default_rng(6)
    found = [mismatch([assignments(draw, 2_000, kept)]) for _ in range(50)]
    assert sum(map(bool, found)) >= 49
    assert "met the candidate, where a weight of" in found[0]


def test_gateways_are_no_evidence_for_each_other() -> None:
    """Both see the same few units: what is not certain for one is not for two."""
    alone = [AssignmentCount("s", 5_000, 100, 67)]
    assert not mismatch([alone, alone])
    assert mismatch([alone, [AssignmentCount("s", 5_000, 1_000, 300)]])


@pytest.mark.parametrize(
    "assignment",
    [
        AssignmentCount("s", 0, 9, 9),
        AssignmentCount("s", 10_000, 9, 0),
        AssignmentCount("s", 100, 1, 5),
    ],
)
def test_where_nothing_is_left_to_chance_nothing_is_held_against_it(
    assignment: AssignmentCount,
) -> None:
    assert mismatch([[assignment]]) == ""
    assert mismatch([]) == ""
