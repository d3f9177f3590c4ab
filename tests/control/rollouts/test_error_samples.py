"""How many requests the guardrail of errors needs is what docs/rollouts.md says."""

import re
from pathlib import Path

import pytest

from control.rollouts.guardrails import FAIL_ALPHA
from control.rollouts.plan import Guardrails
from control.statistics.sequential import difference_of_rates

DOCS = Path(__file__).parents[3] / "docs" / "rollouts.md"
HEAD = "| the stable version fails | + 1 point | + 2 points | + 5 points |"
MORE = (0.01, 0.02, 0.05)


def rolls_back(n: int, base: float, more: float) -> bool:
    """Whether `n` requests to each arm are enough, if as many fail as are to be expected."""
    bad = round(n * (base + more)), round(n * base)
    margin = Guardrails().error_margin
    return difference_of_rates(bad[0], n, bad[1], n, FAIL_ALPHA).lower > margin


def fewest(base: float, more: float) -> int:
    """Requests of each arm, to two digits, rounded up."""
    low, high = 50, 1_000_000
    while high - low > low // 200 + 1:
        middle = (low + high) // 2
        low, high = (low, middle) if rolls_back(middle, base, more) else (middle, high)
    step = 10 ** (len(str(high)) - 2)
    return -(-high // step) * step


def rows() -> list[tuple[float, list[int]]]:
    lines = DOCS.read_text().partition(HEAD)[2].splitlines()[2:]
    found = []
    for line in lines:
        cells = [one.strip().replace(",", "") for one in line.strip("| \n").split("|")]
        if not re.match(r"[0-9.]+ %", cells[0]):
            break
        found.append((float(cells[0].rstrip(" %")) / 100, [int(one) for one in cells[1:]]))
    return found


def test_the_table_has_rows() -> None:
    assert len(rows()) == 4


@pytest.mark.parametrize(("base", "samples"), rows())
def test_the_samples_that_the_docs_name_are_those_of_the_guardrail(
    base: float, samples: list[int]
) -> None:
    assert samples == [fewest(base, more) for more in MORE]
