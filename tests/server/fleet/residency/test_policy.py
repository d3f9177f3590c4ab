"""Who is evicted: the least recently used of those that nothing holds, and no more than needed."""

import random
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from server.fleet.residency.policy import (
    ResidencyFacts,
    choose_victims,
    hold_on,
    next_moves,
)
from server.fleet.residency.terms import ResidencyTerms, read_hours

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
NOW = 1000.0
TERMS = ResidencyTerms(on_demand=True, min_residency_s=2.0)


def idle(name: str, bytes: int = 10, last_used: float = 0.0) -> ResidencyFacts:
    return ResidencyFacts(name, True, bytes, 0.0, last_used, TERMS)


@pytest.mark.parametrize(
    ("change", "reason", "passing"),
    [
        ({"pinned": True}, "is pinned", False),
        ({"inflight": 1}, "has 1 request in flight", True),
        ({"kept": 2}, "will be called by 2 requests", True),
        ({"sequences": 3}, "has 3 live sequences", True),
        ({"loaded_at": NOW - 1}, "was loaded less than 2 s ago", True),
        (
            {"last_used": NOW - 3, "terms": TERMS._replace(keep_warm_s=5.0)},
            "is kept warm 5 s after a request",
            True,
        ),
        (
            {"terms": TERMS._replace(warm_hours=read_hours("11:00-13:00"))},
            "is kept warm 11:00-13:00",
            False,
        ),
    ],
)
def test_what_is_in_use_or_held_is_not_evicted(
    change: dict[str, object], reason: str, passing: bool
) -> None:
    held = replace(idle("a"), **change)  # type: ignore[arg-type]
    assert hold_on(held, NOW, NOON) == (reason, passing)
    eviction = choose_victims([held], 5, NOW, NOON)
    assert eviction == ((), (f"a {reason}",), passing)


def test_the_least_recently_used_goes_first() -> None:
    versions = [idle("a", 10, 30.0), idle("b", 10, 10.0), idle("c", 10, 20.0)]
    assert choose_victims(versions, 15, NOW, NOON).victims == ("b", "c")


def test_nobody_is_evicted_in_vain() -> None:
    versions = [idle("a"), replace(idle("b", 100), pinned=True)]
    assert choose_victims(versions, 50, NOW, NOON) == ((), ("b is pinned",), False)


def test_what_is_not_needed_after_all_stays() -> None:
    versions = [idle("small", 5, 10.0), idle("large", 100, 20.0)]
    assert choose_victims(versions, 50, NOW, NOON).victims == ("large",)


def test_waiting_can_help_only_where_what_is_busy_would_be_enough() -> None:
    busy = replace(idle("a"), inflight=1)
    assert choose_victims([busy], 10, NOW, NOON).may_pass
    assert not choose_victims([busy], 11, NOW, NOON).may_pass


def test_waiting_can_help_while_another_is_loaded_or_closed() -> None:
    moving = replace(idle("a"), resident=False, moving=True)
    assert choose_victims([moving], 10, NOW, NOON) == ((), (), True)


def test_a_refusal_names_a_few_and_counts_the_rest() -> None:
    versions = [replace(idle(f"m{n}"), pinned=True) for n in range(7)]
    held = choose_victims(versions, 1, NOW, NOON).held
    assert held == (*(f"m{n} is pinned" for n in range(4)), "and 3 more stay")


def test_pins_and_hours_load_and_idle_times_unload() -> None:
    warm = TERMS._replace(warm_hours=read_hours("11:00-13:00"))
    brief = TERMS._replace(idle_unload_s=60.0)
    versions = [
        replace(idle("pinned"), resident=False, pinned=True),
        replace(idle("warm"), resident=False, terms=warm),
        replace(idle("standby"), resident=False),
        replace(idle("unused"), terms=brief, last_used=NOW - 61),
        replace(idle("used"), terms=brief, last_used=NOW - 59),
        replace(idle("busy"), terms=brief, inflight=1),
    ]
    assert next_moves(versions, NOW, NOON) == (("pinned", "warm"), ("unused",))


@pytest.mark.parametrize("seed", range(200))
def test_random_evictions_free_enough_hurt_nobody_and_are_minimal(seed: int) -> None:
    draw = random.Random(seed)
    versions = [
        ResidencyFacts(
            f"m{n}",
            draw.random() < 0.9,
            draw.randrange(0, 100),
            draw.uniform(NOW - 10, NOW),
            draw.uniform(NOW - 20, NOW),
            TERMS._replace(keep_warm_s=draw.choice([0.0, 5.0])),
            inflight=draw.choice([0, 0, 0, 1]),
            sequences=draw.choice([0, 0, 0, 2]),
            pinned=draw.random() < 0.1,
        )
        for n in range(draw.randrange(0, 30))
    ]
    lacking = draw.randrange(1, 400)
    eviction = choose_victims(versions, lacking, NOW, NOON)
    by_name = {one.name: one for one in versions}
    free = [one for one in versions if one.resident and hold_on(one, NOW, NOON) is None]
    if not eviction.victims:
        assert sum(one.bytes for one in free) < lacking
        return
    freed = sum(by_name[name].bytes for name in eviction.victims)
    assert freed >= lacking
    assert all(by_name[name] in free for name in eviction.victims)
    assert all(freed - by_name[name].bytes < lacking for name in eviction.victims)
