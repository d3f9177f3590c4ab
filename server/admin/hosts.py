"""Whether a request was meant for us and made by us: Host against DNS rebinding, Origin. Pure."""

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from server.admin.errors import CrossSite, Misdirected

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


def known_hosts(admin_address: str, public_url: str) -> frozenset[str]:
    """Names without port that a Host header may have.

    An address that means every interface adds no name: give --public-url for those.
    """
    names = set(LOOPBACK)
    if admin_address not in ("", "0.0.0.0", "::"):
        names.add(admin_address.strip("[]").lower())
    if public_url:
        names.add((urlsplit(public_url).hostname or "").lower())
    return frozenset(names)


def check_host(host: str, known: Iterable[str]) -> None:
    """`host` is the Host header. Raises Misdirected."""
    name = host_name(host)
    if name not in known:
        raise Misdirected(
            f"this server is not '{name[:100]}'; it answers to {', '.join(sorted(known))}; "
            "name another with --public-url"
        )


def check_origin(method: str, headers: Mapping[str, str], public_url: str) -> None:
    """Refuse what a page of another site wants changed, whatever credentials it rides on.

    Raises CrossSite.
    """
    if method in SAFE:
        return
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise CrossSite("a page of another site may not change anything here")
    origin = headers.get("origin")
    if origin is not None and not _same(origin, headers.get("host", ""), public_url):
        raise CrossSite(f"a page of {origin[:100]} may not change anything here")


def host_name(host: str) -> str:
    """The name in a Host header, without port and brackets, in lower case."""
    name = host.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.rpartition(":")[0] if name.count(":") == 1 else name


def _same(origin: str, host: str, public_url: str) -> bool:
    found = urlsplit(origin)
    if found.scheme not in ("http", "https") or not found.netloc:
        return False
    ours = {host.lower()}
    if public_url:
        ours.add(urlsplit(public_url).netloc.lower())
    return found.netloc.lower() in ours
