"""How units are shared out during a rollout, as a gateway counts it."""

from typing import Any

import pytest

from control.desired import DesiredState, Match
from control.routes.buckets import bucket
from schedulers.reply import Reply
from schedulers.request import InferRequest, Sequence
from server.routing import assignment_counter
from server.routing.assignment_counter import AssignmentCounter
from server.routing.routing import Routing
from server.routing.table import Target
from support.routing import Request, route


def rows(counter: AssignmentCounter) -> list[list[Any]]:
    """Rollout, salt, weight, units, and those that met the second arm."""
    return [[rollout, *one] for rollout, all_ in counter.by_rollout().items() for one in all_]


def routing(weight: float = 50, **rest: object) -> Routing:
    made = Routing(_send)
    use(made, weight, **rest)
    return made


def use(made: Routing, weight: float, **rest: object) -> None:
    arms = (("stable", 1, 100 - weight), ("candidate", 2, weight))
    made.use(DesiredState(routes=(route(*arms, **{"rollout": "r1", **rest}),)))


def _send(target: Target, request: InferRequest, until_ns: int) -> Reply:
    raise AssertionError("no copies here")


def meet(made: Routing, *units: str, **labels: str) -> None:
    for unit in units:
        made.note_assignment(made.pick(made.table["numbers"], unit, labels))


def units(count: int, first: int = 0) -> list[str]:
    return [f"u{number}" for number in range(first, first + count)]


def test_a_unit_counts_once_and_where_the_weight_of_its_first_sight_put_it() -> None:
    made = routing(20)
    meet(made, *units(300), *units(300))
    share = sum(bucket("salt", unit) < 2_000 for unit in units(300))
    assert rows(made.assignments) == [["r1", "salt", 2_000, 300, share]]
    use(made, 50)
    meet(made, *units(400))
    more = sum(bucket("salt", unit) < 5_000 for unit in units(100, 300))
    assert rows(made.assignments)[1:] == [["r1", "salt", 5_000, 100, more]]


def test_requests_without_a_unit_count_one_by_one() -> None:
    made = routing(unit="")
    meet(made, *[""] * 40)
    ((_, _, weight, count, second),) = rows(made.assignments)
    assert (weight, count) == (5_000, 40)
    assert 0 < second < 40


def test_what_a_rule_or_the_kill_switch_sent_is_no_matter_of_chance() -> None:
    made = routing(matches=(Match("x-tester", "yes", "candidate"),))
    target = made.pick(made.table["numbers"], "ada", {"x-tester": "yes"})
    made.note_assignment(target)
    use(made, 50, only="stable")
    meet(made, "ada")
    assert rows(made.assignments) == []


@pytest.mark.parametrize("terms", [{"weight": 0}, {"weight": 100}, {"weight": 50, "rollout": ""}])
def test_nobody_counts_where_nobody_asks(terms: dict[str, object]) -> None:
    made = routing(**terms)  # type: ignore[arg-type]
    meet(made, *units(10), "")
    assert rows(made.assignments) == []


def test_a_sequence_that_goes_on_was_drawn_for_already() -> None:
    made = routing(unit="")
    for start in (True, False, False):
        sequence = Sequence(7, start, False)
        target = made.select(made.table["numbers"], Request(within=sequence))
        made.keep(target, sequence)
        made.note_assignment(target)
    ((*_, count, _),) = rows(made.assignments)
    assert count == 1


def test_another_salt_is_another_chance_and_another_rollout_another_count() -> None:
    made = routing()
    meet(made, *units(5))
    use(made, 50, salt="again")
    meet(made, *units(7))
    assert [row[:4] for row in rows(made.assignments)] == [["r1", "again", 5_000, 7]]
    use(made, 50, rollout="r2")
    assert rows(made.assignments) == []


def test_units_beyond_those_remembered_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment_counter, "MOST_UNITS", 10)
    made = routing()
    meet(made, *units(30))
    assert [row[3] for row in rows(made.assignments)] == [10]
