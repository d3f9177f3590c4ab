"""Decide whether a request was meant for this server and not made by another site's web page. Pure.

`server.rest.protocol` asks for infer requests, `server.rest.middleware` for every other path of
REST and for the metrics; `control.authentication.hosts` holds the console to the same rules. What
a browser says about a page (Origin, Sec-Fetch-*: the Fetch standard) no page can forge; programs
say none of it.
"""

from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from control.authentication.origins import ANY, LOOPBACK, SAFE, host_name, same_origin
from server.errors import CrossSite, Misdirected, ServingError

BROWSER_HEADERS = frozenset(
    {b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest", b"sec-fetch-user"}
)
"""Sent by browsers alone. A page cannot set or remove them."""

NOTED_HEADERS = BROWSER_HEADERS | {b"host", b"referer"}
"""All that decides, but for the content type of a request that has one of these."""

_FORM_TYPES = frozenset(
    {b"application/x-www-form-urlencoded", b"multipart/form-data", b"text/plain"}
)
"""Content types that a page may send to any site without asking it first."""
_LONGEST_SHOWN = 100


class SitePolicy(NamedTuple):
    """Which hosts a listener answers to, and which other sites' pages may write.

    `hosts`: names and addresses in lower case, without port; None for any. `origins`: as browsers
    write them, or "*" for any.
    """

    hosts: frozenset[str] | None = None
    origins: frozenset[str] = frozenset()

    def refusal(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> ServingError | None:
        """Why a request is refused; None when it is not. Names of `headers` are in lower case."""
        found = _read(headers)
        if self.hosts is not None:
            for host in found.hosts:
                if host_name(host) not in self.hosts and not _is_loopback(host_name(host)):
                    return Misdirected(self._misdirected(host_name(host)))
        if method in SAFE or (found.origin is not None and self.admits(found.origin)):
            return None
        return _cross_site(found)

    def admits(self, origin: str) -> bool:
        """Whether the pages of `origin` may read and write as if they were ours."""
        return ANY in self.origins or origin in self.origins

    def _misdirected(self, name: str) -> str:
        assert self.hosts is not None
        return (
            f"this server is not '{name[:_LONGEST_SHOWN]}'; it answers to "
            f"{', '.join(sorted(self.hosts))}; name another with --allowed-hosts"
        )


def site_policy(
    address: str, is_loopback: bool, allowed_hosts: Sequence[str], origins: Sequence[str]
) -> SitePolicy:
    """The policy of a listener on `address`.

    Names are asked for while only this machine reaches it by TCP: otherwise a page whose name is
    made to lead to 127.0.0.1 (DNS rebinding) would be a page of ours. They are also asked for
    where `allowed_hosts` says which.
    """
    hosts = {name.strip("[]").lower() for name in allowed_hosts}
    if ANY in hosts or not (is_loopback or hosts):
        return SitePolicy(None, frozenset(origins))
    return SitePolicy(
        frozenset(hosts | LOOPBACK | {address.strip("[]").lower()}), frozenset(origins)
    )


class _SiteHeaders(NamedTuple):
    """What the headers say. `hosts` are as written, with port; no Host is none."""

    hosts: tuple[str, ...]
    origin: str | None
    site: str | None
    content_type: bytes
    is_browser: bool
    referer: str | None


def _read(headers: Iterable[tuple[bytes, bytes]]) -> _SiteHeaders:
    hosts: list[str] = []
    by_name: dict[bytes, bytes] = {}
    for name, value in headers:
        if name == b"host":
            hosts.append(value.decode("latin-1"))
        elif name in by_name:
            by_name[name] += b", " + value  # nobody's origin
        else:
            by_name[name] = value
    return _SiteHeaders(
        tuple(host for host in hosts if host.strip()),
        _text(by_name.get(b"origin")),
        _text(by_name.get(b"sec-fetch-site")),
        by_name.get(b"content-type", b"").partition(b";")[0].strip().lower(),
        not BROWSER_HEADERS.isdisjoint(by_name),
        _text(by_name.get(b"referer")),
    )


def authority_of(target: bytes) -> bytes:
    """Host and port of a request's target in absolute form; b"" when it has none."""
    try:
        return urlsplit(target).netloc.rpartition(b"@")[2]
    except ValueError:
        return b"?"


def _cross_site(found: _SiteHeaders) -> CrossSite | None:
    host = next(iter(found.hosts), "")
    is_own = found.origin is not None and same_origin(found.origin, host)
    if found.origin is not None and not is_own:
        return CrossSite(_foreign(f"a page of {found.origin[:_LONGEST_SHOWN]}"))
    if found.site is not None and found.site.strip().lower() not in ("none", "same-origin"):
        return CrossSite(_foreign("a page of another site"))
    if is_own or found.content_type not in _FORM_TYPES:
        return None
    if found.is_browser or (found.referer is not None and not same_origin(found.referer, host)):
        kind = found.content_type.decode("latin-1")
        return CrossSite(
            f"a browser sent {kind}, as any page may without being asked; send application/json"
        )
    return None


def _foreign(who: str) -> str:
    return (
        f"{who} may not send anything here; allow its origin with --http-cors-allow-origin if it "
        "is yours"
    )


def _is_loopback(name: str) -> bool:
    """Whether a name is an address of this machine itself, as 127.0.0.2 is."""
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")
