"""What the listeners ask of routes in force."""

from typing import Any

import pytest
from msgspec.structs import replace

from control.desired import DesiredState, Mirror
from schedulers.reply import Reply
from schedulers.request import InferRequest
from server.routing import routing
from server.routing.pick import RouteKey, pick
from server.routing.routing import Routing, labels_of, unit_of
from server.routing.table import Target
from support.routing import Request, halves


def _send(target: Target, request: InferRequest, until_ns: int) -> Reply:
    raise AssertionError("no copies here")


@pytest.mark.parametrize("value", [b"ada", b"bob", "größe".encode(), b"\xff", b""], ids=ascii)
@pytest.mark.parametrize("only", ["", "candidate"])
def test_the_unit_alone_is_read_as_it_is_with_other_headers(value: bytes, only: str) -> None:
    made = Routing(_send)
    made.use(DesiredState(routes=(halves(only=only),)))
    route = made.table["numbers"]
    headers = [(b"host", b"x"), (b"x-user", value), (b"x-user", b"second")]
    unit = unit_of(route, labels_of(route, headers), None)
    assert unit == value.decode("utf-8", "surrogateescape")
    for _ in range(2):
        found = made.select(route, Request(tuple(headers)))
        if unit:
            assert found is pick(route, RouteKey(unit))
        assert found.sticky is bool(unit and not only)
    assert not made.select(route, Request(tuple(headers[:1]))).sticky


@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"only": "candidate"},
        {"mirrors": (Mirror("candidate", 5_000),)},
        {"mirrors": (Mirror("candidate", 10_000),)},
        {"rollout": "r1"},
    ],
    ids=repr,
)
def test_a_draw_finds_whom_a_request_without_a_unit_finds(
    terms: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Routing(_send)
    made.use(DesiredState(routes=(replace(halves(**terms), unit=""),)))
    route = made.table["numbers"]
    for n in range(1_000):
        monkeypatch.setattr(routing, "random", lambda draw=n / 1_000: draw)
        assert made.pick(route) is pick(route, RouteKey(draw=n / 1_000))
