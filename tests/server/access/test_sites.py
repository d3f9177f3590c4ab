"""Pages of other sites, and names that are not ours: the decision."""

import pytest

from control.authentication.hosts import check_host, known_hosts
from control.http_errors import WrongHost as AdminMisdirected
from server.access.sites import SitePolicy, site_policy
from server.errors import CrossSite, Misdirected

LOCAL = site_policy("127.0.0.1", True, (), ())
OPEN = site_policy("0.0.0.0", False, (), ())
PROXIED = site_policy("127.0.0.1", True, ("Models.Example", "[fd00::1]"), ())
TRUSTING = site_policy("127.0.0.1", True, (), ("https://app.example",))
OURS = ("host", "localhost:8000")

REFUSED: list[tuple[SitePolicy, str, list[tuple[str, str]], type[Exception]]] = [
    (LOCAL, "POST", [OURS, ("origin", "https://evil.example")], CrossSite),
    (OPEN, "POST", [OURS, ("origin", "https://evil.example")], CrossSite),
    (LOCAL, "DELETE", [OURS, ("origin", "http://localhost:3000")], CrossSite),
    (LOCAL, "POST", [OURS, ("origin", "null")], CrossSite),
    (LOCAL, "POST", [("host", "localhost:80"), ("origin", "https://localhost")], CrossSite),
    (LOCAL, "POST", [("host", "localhost"), ("origin", "http://localhost:443")], CrossSite),
    (LOCAL, "POST", [("host", ""), ("origin", "http://:80"), ("content-type", "text/plain")],
     CrossSite),
    (LOCAL, "POST", [("host", "evil.example"), ("origin", "http://evil.example"),
                     ("content-type", "text/plain")], Misdirected),
    (LOCAL, "POST", [OURS, ("origin", "http://localhost:8000"), ("sec-fetch-site", "cross-site"),
                     ("content-type", "text/plain")], CrossSite),
    (LOCAL, "POST", [OURS, ("origin", "")], CrossSite),
    (LOCAL, "POST", [OURS, ("origin", "http://[")], CrossSite),
    (LOCAL, "POST", [OURS, ("origin", "http://localhost:8000"), ("origin", "null")], CrossSite),
    (LOCAL, "POST", [OURS, ("sec-fetch-site", "cross-site")], CrossSite),
    (LOCAL, "POST", [OURS, ("sec-fetch-site", "same-site")], CrossSite),
    (LOCAL, "POST", [("origin", "http://localhost:8000")], CrossSite),
    (LOCAL, "POST", [OURS, ("sec-fetch-mode", "no-cors"), ("content-type", "text/plain")],
     CrossSite),
    (LOCAL, "POST", [OURS, ("referer", "http://evil.example/"),
                     ("content-type", "multipart/form-data; boundary=x")], CrossSite),
    (LOCAL, "GET", [("host", "evil.example:8000")], Misdirected),
    (LOCAL, "POST", [("host", "evil.example"), ("origin", "http://evil.example")], Misdirected),
    (LOCAL, "POST", [OURS, ("host", "evil.example")], Misdirected),
    (LOCAL, "GET", [("host", "localhost.evil.example")], Misdirected),
    (LOCAL, "GET", [("host", "192.168.1.5:8000")], Misdirected),
    (LOCAL, "GET", [("host", "[::1].evil.example")], Misdirected),
    (PROXIED, "GET", [("host", "other.example")], Misdirected),
    (TRUSTING, "POST", [OURS, ("origin", "https://app.example.evil.example")], CrossSite),
    (TRUSTING, "POST", [("host", "evil.example"), ("origin", "https://app.example")], Misdirected),
]  # fmt: skip

ALLOWED: list[tuple[SitePolicy, str, list[tuple[str, str]]]] = [
    (LOCAL, "POST", [OURS, ("content-type", "application/x-www-form-urlencoded")]),
    (LOCAL, "POST", [OURS, ("content-type", "text/plain")]),
    (LOCAL, "POST", [OURS, ("origin", "http://localhost:8000")]),
    (LOCAL, "POST", [OURS, ("origin", "http://localhost:8000"), ("content-type", "text/plain")]),
    (LOCAL, "POST", [("host", "localhost:80"), ("origin", "http://localhost")]),
    (LOCAL, "POST", [("host", "[::1]"), ("origin", "http://[::1]:80")]),
    (PROXIED, "POST", [("host", "models.example:443"), ("origin", "https://models.example")]),
    (LOCAL, "POST", [OURS, ("origin", "http://LOCALHOST:8000"), ("sec-fetch-site", "same-origin")]),
    (LOCAL, "POST", [("host", "[::1]:8000"), ("origin", "http://[::1]:8000")]),
    (LOCAL, "POST", []),
    (LOCAL, "POST", [("host", "")]),
    (LOCAL, "POST", [("host", "LocalHost")]),
    (LOCAL, "POST", [("host", "127.0.0.2:8000")]),
    (LOCAL, "GET", [OURS, ("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")]),
    (OPEN, "POST", [("host", "models.example:8000")]),
    (PROXIED, "POST", [("host", "models.example:443")]),
    (PROXIED, "POST", [("host", "[FD00::1]:443")]),
    (site_policy("127.0.0.1", True, ("*",), ()), "POST", [("host", "any.example")]),
    (TRUSTING, "POST", [OURS, ("origin", "https://app.example"), ("sec-fetch-site", "cross-site"),
                        ("content-type", "text/plain")]),
    (site_policy("127.0.0.1", True, (), ("*",)), "POST", [OURS, ("origin", "null")]),
]  # fmt: skip


def _headers(pairs: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in pairs]


@pytest.mark.parametrize(("policy", "method", "pairs", "kind"), REFUSED)
def test_what_another_site_or_another_name_brings_is_refused(
    policy: SitePolicy, method: str, pairs: list[tuple[str, str]], kind: type[Exception]
) -> None:
    assert type(policy.refusal(method, _headers(pairs))) is kind


@pytest.mark.parametrize(("policy", "method", "pairs"), ALLOWED)
def test_programs_and_our_own_pages_are_let_through(
    policy: SitePolicy, method: str, pairs: list[tuple[str, str]]
) -> None:
    assert policy.refusal(method, _headers(pairs)) is None


def test_the_console_answers_to_the_hosts_of_a_proxy_but_never_to_any() -> None:
    names = known_hosts("127.0.0.1", "https://models.example", ("proxy.example", "*"))
    for host in ("proxy.example:443", "models.example", "[::1]:8003"):
        check_host(host, names)
    with pytest.raises(AdminMisdirected, match="--public-url or --allowed-hosts"):
        check_host("any.example", names)
