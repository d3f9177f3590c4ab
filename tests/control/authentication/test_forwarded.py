"""Whose address counts where proxies stand before the admin port."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.api.app import admin_app
from control.authentication.forwarded import behind_proxies, client_address, networks
from control.services import ControlServices
from control.sql.database import Database
from support.admin import Api, api, basic

TRUSTED = networks(["10.0.0.0/8", "fd00::/8", "127.0.0.1"])


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("198.51.100.9", ["203.0.113.5"], "198.51.100.9"),
        ("10.1.2.3", ["203.0.113.5"], "203.0.113.5"),
        ("10.1.2.3", ["6.6.6.6, 203.0.113.5"], "203.0.113.5"),
        ("10.1.2.3", ["6.6.6.6", "203.0.113.5, 10.9.9.9"], "203.0.113.5"),
        ("10.1.2.3", ["10.4.4.4"], "10.4.4.4"),
        ("10.1.2.3", [], "10.1.2.3"),
        ("10.1.2.3", ["unknown"], "10.1.2.3"),
        ("10.1.2.3", ["203.0.113.5, unknown, 10.9.9.9"], "10.9.9.9"),
        ("10.1.2.3", ["203.0.113.5:4711"], "203.0.113.5"),
        ("::ffff:10.1.2.3", ["[2001:db8::7]:4711"], "2001:db8::7"),
        ("fd00::1", ["2001:db8::7"], "2001:db8::7"),
    ],
)
def test_the_client_is_the_nearest_address_that_is_no_trusted_proxy(
    peer: str, forwarded: list[str], client: str
) -> None:
    assert client_address(peer, forwarded, TRUSTED) == client


@given(st.lists(st.text(max_size=40), max_size=5))
def test_nobody_else_chooses_the_address_they_are_counted_under(lines: list[str]) -> None:
    assert client_address("198.51.100.9", lines, TRUSTED) == "198.51.100.9"


def test_behind_a_trusted_proxy_guesses_count_for_the_one_who_makes_them(
    sqlite: Database, tmp_path: Path
) -> None:
    def build(services: ControlServices) -> Any:
        return behind_proxies(admin_app(services), networks(["127.0.0.1"]))

    with api(sqlite, tmp_path, monotonic=lambda: 7.0, build=build) as running:
        login = running.user("ada", "viewer")
        eve = {"X-Forwarded-For": "198.51.100.9", "Authorization": basic("ada", "wrong")}
        assert [_status(running, eve) for _ in range(6)] == [401] * 5 + [429]
        own = {"X-Forwarded-For": "198.51.100.9, 203.0.113.5", "Authorization": login}
        assert _status(running, own) == 200
        assert _status(running, eve) == 429


def test_without_trusted_proxies_the_header_is_hearsay(sqlite: Database, tmp_path: Path) -> None:
    with api(sqlite, tmp_path, monotonic=lambda: 7.0) as running:
        running.user("ada", "viewer")
        said = [
            {"X-Forwarded-For": f"198.51.100.{one}", "Authorization": basic("ada", "wrong")}
            for one in range(6)
        ]
        assert [_status(running, one) for one in said] == [401] * 5 + [429]


def _status(running: Api, headers: dict[str, str]) -> int:
    return running.ask("GET", "/me", headers=headers).status
