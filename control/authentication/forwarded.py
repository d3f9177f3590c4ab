"""The client's address where proxies stand before a listener: X-Forwarded-For, from those only.

Each proxy adds at the end of the header whom it was called by; what came before is hearsay. Pure.
"""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any

HEADER = b"x-forwarded-for"

Networks = Sequence[IPv4Network | IPv6Network]


def networks(texts: Iterable[str]) -> Networks:
    """Raises ValueError for what is no network."""
    return tuple(ip_network(text) for text in texts)


def client_address(peer: str, forwarded: Iterable[str], trusted: Networks) -> str:
    """The nearest address that is no trusted proxy's, beginning with the peer itself.

    `forwarded`: the header's values in the order they came. What follows something that is no
    address is not looked at: the last proxy known is the client then.
    """
    address = peer
    hops = [hop.strip() for line in forwarded for hop in line.split(",")]
    while hops and _is_within(address, trusted):
        before = _plain(hops.pop())
        if not before:
            break
        address = before
    return address


def behind_proxies(app: Any, trusted: Networks) -> Any:
    """`app` as an ASGI application that is told of its clients instead of their proxies."""
    if not trusted:
        return app

    async def app_behind_proxies(scope: Any, receive: Any, send: Any) -> None:
        client = scope.get("client")
        if scope["type"] == "http" and client and scope["server"][1] is not None:
            lines = [value.decode("latin-1") for name, value in scope["headers"] if name == HEADER]
            address = client_address(client[0], lines, trusted)
            scope = {**scope, "client": (address, client[1] if address == client[0] else 0)}
        await app(scope, receive, send)

    return app_behind_proxies


def _is_within(address: str, trusted: Networks) -> bool:
    plain = _plain(address)
    return bool(plain) and any(ip_address(plain) in network for network in trusted)


def _plain(hop: str) -> str:
    """An address without port and brackets, an IPv4 one as such; "" for what is none."""
    text = hop.partition("]")[0].lstrip("[") if hop.startswith("[") else hop
    if text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ip_address(text)
    except ValueError:
        return ""
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found)
