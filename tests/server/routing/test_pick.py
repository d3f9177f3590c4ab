"""Which arm answers: kill switch, rules, units and draws."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from control.desired import DesiredArm, DesiredRoute, Match, Mirror
from control.routes.buckets import BUCKETS, bucket
from server.routing.pick import RouteKey, pick
from server.routing.routing import labels_in, unit_header_in, unit_of
from server.routing.table import LONGEST_KNOWN, MOST_KNOWN, compile_route, compile_table
from support.routing import halves, route

UNITS = 100_000


def arm_of(wanted: DesiredRoute, unit: str = "", draw: float = 0.0, **labels: str) -> str:
    named = {name.replace("_", "-"): value for name, value in labels.items()}
    return pick(compile_route(wanted, {}), RouteKey(unit, named, draw)).arm


@given(st.integers(0, 100_00), st.integers(0, 100_00), st.text(max_size=20))
def test_a_weight_that_grows_never_moves_a_unit_back(one: int, other: int, unit: str) -> None:
    less, more = sorted((one, other))
    before, after = (
        arm_of(route(("stable", 1, 100 - w / 100), ("candidate", 2, w / 100)), unit or "x")
        for w in (less, more)
    )
    assert (before, after) != ("candidate", "stable")


def test_the_candidate_owns_the_buckets_from_nothing_to_its_weight() -> None:
    compiled = compile_route(route(("stable", 1, 75), ("candidate", 2, 25)), {})
    assert compiled.owners == bytes([1] * 2_500 + [0] * 7_500)
    third = compile_route(route(("stable", 1, 60), ("b", 2, 10), ("c", 3, 30)), {})
    assert third.owners == bytes([1] * 1_000 + [2] * 3_000 + [0] * 6_000)


@pytest.mark.parametrize("percent", [1, 5, 25, 50])
def test_units_spread_as_the_weights_say(percent: int) -> None:
    compiled = compile_route(route(("stable", 1, 100 - percent), ("candidate", 2, percent)), {})
    found = Counter(pick(compiled, RouteKey(f"user{n}")).arm for n in range(UNITS))
    expected = UNITS * percent / 100
    assert abs(found["candidate"] - expected) < 5 * (expected * (1 - percent / 100)) ** 0.5


def test_a_unit_stays_with_its_arm_and_another_salt_shuffles_anew() -> None:
    here, there = (compile_route(halves(salt=salt), {}) for salt in ("a", "b"))
    units = [f"user{n}" for n in range(10_000)]
    first = [pick(here, RouteKey(unit, draw=0.1)).arm for unit in units]
    assert [pick(here, RouteKey(unit, draw=0.9)).arm for unit in units] == first
    same = sum(pick(there, RouteKey(u)).arm == arm for u, arm in zip(units, first, strict=True))
    assert 4_700 < same < 5_300


def test_without_a_unit_each_request_is_drawn_and_marked() -> None:
    compiled = compile_route(route(("stable", 1, 90), ("candidate", 2, 10)), {})
    found = [pick(compiled, RouteKey(draw=n / 1_000)) for n in range(1_000)]
    assert Counter(target.arm for target in found) == {"candidate": 100, "stable": 900}
    assert not any(target.sticky for target in found)
    assert pick(compiled, RouteKey("ada")).sticky


@given(st.floats(0, 1, exclude_max=True))
def test_every_draw_finds_an_arm(draw: float) -> None:
    assert arm_of(halves(mirrors=(Mirror("candidate", 5_000),)), draw=draw) in (
        "stable",
        "candidate",
    )


def test_rules_come_before_buckets_and_the_first_that_fits_wins() -> None:
    rules = (
        Match("x-tester", "ada", "candidate"),
        Match("x-agent", "bot/", "stable", prefix=True),
        Match("x-agent", "bot/7", "candidate", prefix=True),
    )
    wanted = route(("stable", 1, 100), ("candidate", 2, 0), matches=rules)
    assert arm_of(wanted, "u", x_tester="ada") == "candidate"
    assert arm_of(wanted, "u", x_tester="ada lovelace") == "stable"
    assert arm_of(wanted, "u", x_agent="bot/7") == "stable"
    compiled = compile_route(wanted, {})
    assert compiled.headers == {b"x-user", b"x-tester", b"x-agent"}
    assert not pick(compiled, RouteKey("u", {"x-tester": "ada"})).sticky


def test_the_kill_switch_comes_before_everything() -> None:
    rule, mirror = Match("x", "y", "candidate"), Mirror("candidate", BUCKETS)
    killed = halves(matches=(rule,), mirrors=(mirror,), only="stable")
    for unit in range(100):
        target = pick(compile_route(killed, {}), RouteKey(f"u{unit}", {"x": "y"}))
        assert (target.arm, target.mirrors) == ("stable", ())


def test_requests_are_copied_as_often_as_wanted_and_never_to_who_answers() -> None:
    wanted = route(("stable", 1, 90), ("candidate", 2, 10), mirrors=(Mirror("candidate", 500),))
    compiled = compile_route(wanted, {})
    with_unit = [pick(compiled, RouteKey("ada", draw=n / 10_000)) for n in range(10_000)]
    assert sum(bool(target.mirrors) for target in with_unit) == 500
    drawn = [pick(compiled, RouteKey(draw=(n + n * 0.001) / 100_000)) for n in range(99_000)]
    by_stable = [target for target in drawn if target.arm == "stable"]
    copied = [target for target in by_stable if target.mirrors]
    assert len(copied) / len(by_stable) == pytest.approx(0.05, abs=0.005)
    assert not any(target.mirrors for target in drawn if target.arm == "candidate")
    assert copied[0].mirrors[0].key == ("numbers", "", "candidate", "digits", 2, True)


def test_what_the_response_says_is_ascii_and_names_the_rollout() -> None:
    told = route(("stable", 1, 100), model="größe; @", rollout="r1")
    target = pick(compile_route(told, {}), RouteKey("ada"))
    assert target.label == "gr%C3%B6%C3%9Fe%3B%20%40@1;stable;rollout=r1"
    assert target.line == b"x-modelyard-route: " + target.label.encode() + b"\r\n"


def test_an_alias_stands_for_its_version_at_the_time_of_the_table() -> None:
    wanted = DesiredRoute("numbers", (DesiredArm("stable", "digits", 0, "best", BUCKETS),))
    table = compile_table([wanted, replace(wanted, name="empty", arms=())], {"digits": {"best": 7}})
    assert {name: one.targets[0].version for name, one in table.items()} == {"numbers": 7}
    assert compile_route(wanted, {}).targets[0].version == 0


def test_the_bucket_is_the_one_that_statistics_know() -> None:
    compiled = compile_route(route(("stable", 1, 99.99), ("candidate", 2, 0.01)), {})
    lucky = next(f"u{n}" for n in range(10**6) if bucket("salt", f"u{n}") == 0)
    assert pick(compiled, RouteKey(lucky)).arm == "candidate"


def test_a_unit_met_again_gets_what_its_hash_says() -> None:
    compiled = compile_route(halves(), {})
    units = [f"user{number}" for number in range(500)]
    for _ in range(2):
        found = [pick(compiled, RouteKey(unit)) for unit in units]
        assert [compiled.owners[bucket("salt", unit)] for unit in units] == [
            compiled.targets.index(target) for target in found
        ]
    assert set(compiled.known) == set(units)


def test_units_remembered_are_bounded_and_long_ones_are_hashed_each_time() -> None:
    compiled = compile_route(halves(), {})
    for number in range(MOST_KNOWN + 100):
        pick(compiled, RouteKey(f"u{number}"))
        assert len(compiled.known) <= MOST_KNOWN
    other, long = compile_route(halves(), {}), "x" * (LONGEST_KNOWN + 1)
    assert pick(other, RouteKey(long)) is other.targets[other.owners[bucket("salt", long)]]
    assert not other.known


@pytest.mark.parametrize(
    "terms",
    [
        {"matches": (Match("x-tester", "yes", "stable"),)},
        {"mirrors": (Mirror("candidate", 5_000),)},
        {"only": "stable"},
    ],
    ids=lambda terms: next(iter(terms)),
)
def test_a_unit_decides_only_where_nothing_else_has_a_say(terms: Any) -> None:
    alone, beside = compile_route(halves(), {}), compile_route(halves(**terms), {})
    assert pick(alone, RouteKey("ada")) is alone.known["ada"]
    assert (alone.decides, beside.decides) == (True, False)


def test_a_mirror_of_everything_needs_no_draw_and_ends_with_the_kill_switch() -> None:
    everything = (Mirror("candidate", BUCKETS),)
    compiled = compile_route(halves(mirrors=everything), {})
    for draw in (0.0, 0.9999):
        found = {pick(compiled, RouteKey(f"u{n}", draw=draw)) for n in range(100)}
        assert {(one.arm, len(one.mirrors)) for one in found} == {("stable", 1), ("candidate", 0)}
    assert compiled.decides
    killed = compile_route(halves(mirrors=everything, only="stable"), {})
    assert pick(killed, RouteKey("ada")).mirrors == ()


def test_another_table_remembers_nothing_of_the_one_before() -> None:
    before, after = (
        compile_table([route(("stable", 1, 100 - weight), ("candidate", 2, weight))], {})
        for weight in (0, 100)
    )
    assert pick(before["numbers"], RouteKey("ada")).arm == "stable"
    assert not after["numbers"].known
    assert pick(after["numbers"], RouteKey("ada")).arm == "candidate"


def test_where_chance_is_counted_each_unit_is_named_and_so_it_is_where_it_is_copied() -> None:
    mirror = Mirror("candidate", 5_000)
    compiled = compile_route(
        route(("stable", 1, 99), ("candidate", 2, 1), rollout="r1", mirrors=(mirror,)), {}
    )
    for unit in ("ada", "bob", "ada"):
        for draw, copies in ((0.4, 1), (0.6, 0)):
            target = pick(compiled, RouteKey(unit, draw=draw))
            assert (target.arm, target.unit, len(target.mirrors)) == ("stable", unit, copies)
            assert target.assignment is not None


def test_several_mirrors_each_get_their_share() -> None:
    shares = (Mirror("b", 1_000), Mirror("c", 4_000), Mirror("stable", 9_000), Mirror("d", 0))
    arms = (("stable", 1, 100), ("b", 2, 0), ("c", 3, 0), ("d", 4, 0))
    compiled = compile_route(route(*arms, mirrors=shares), {})
    found = [
        [one.arm for one in pick(compiled, RouteKey("ada", draw=draw)).mirrors]
        for draw in (0.0, 0.0999, 0.1, 0.3999, 0.4, 0.9)
    ]
    assert found == [["b", "c"], ["b", "c"], ["c"], ["c"], [], []]


@pytest.mark.parametrize("value", [b"ada", b"", "größe".encode(), b"\xff"], ids=ascii)
def test_the_unit_alone_is_read_as_it_is_with_other_headers(value: bytes) -> None:
    compiled = compile_route(halves(), {})
    metadata: list[tuple[str, str | bytes]] = [
        ("x-user", b"binary"),
        ("x-user", value.decode("latin-1")),
        ("x-user", "second"),
    ]
    assert unit_header_in(compiled, metadata) == unit_of(
        compiled, labels_in(compiled, metadata), None
    )
    ruled = compile_route(halves(matches=(Match("x-tester", "yes", "stable"),)), {})
    assert (compiled.unit_header, ruled.unit_header) == (b"x-user", b"")
