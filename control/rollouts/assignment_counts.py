"""Whether units met the arms as often as the weights say. Pure.

Each gateway process counts a unit once in a rollout, under the weight that was in force when it was
first seen: whatever was seen before, its bucket is as good as any, so that each is a fair draw.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from control.rollouts.plan import BUCKETS, percent
from control.statistics.sequential import log_mixture
from control.statistics.srm import SUSPICIOUS

_PRIOR = (0.5, 0.5)


class AssignmentCount(NamedTuple):
    """Of `units` seen first at this weight (in buckets) so many met the candidate. `salt` is the
    route's: a rollout that is tried again has another."""

    salt: str
    weight: int
    units: int
    candidate: int


def mismatch(gateways: Sequence[Sequence[AssignmentCount]]) -> str:
    """In words, "" where chance may explain it: of all rollouts without a fault, however often one
    looks, one in a thousand is called one. `gateways`: one row for each process. A unit that talks
    to several is seen by each, so that they are no evidence for each other."""
    limit = math.log(max(1, len(gateways)) / SUSPICIOUS)
    for assignments in gateways:
        if sum(map(_against, assignments)) > limit:
            return _words(assignments)
    return ""


def _against(assignment: AssignmentCount) -> float:
    """Log of the evidence that the weight is not how likely a unit was to meet the candidate."""
    if not 0 < assignment.weight < BUCKETS or not 0 <= assignment.candidate <= assignment.units:
        return 0.0
    return log_mixture(assignment.candidate, assignment.units, _PRIOR, assignment.weight / BUCKETS)


def _words(assignments: Sequence[AssignmentCount]) -> str:
    worst = max(assignments, key=_against)
    meant = worst.units * worst.weight / BUCKETS
    return (
        f"of {worst.units:,} units {worst.candidate:,} met the candidate, where a weight of "
        f"{percent(worst.weight):g} % means {meant:,.0f}: look for requests that one of the two "
        "versions refuses as the client's own error"
    )
