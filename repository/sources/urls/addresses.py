"""Which network addresses are public. Pure: it resolves nothing."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

_EMBEDS_V4_LAST = (
    IPv6Network("64:ff9b::/96"),
    IPv6Network("::/96"),
    IPv6Network("::ffff:0:0:0/96"),
)
"""NAT64, the old IPv4-compatible form and SIIT: the last 32 bits are an IPv4 address."""

_LINK_LOCAL = "link-local, where clouds keep instance credentials"


def is_literal(host: str) -> bool:
    """Whether the host of a URL is an address already, so that nothing will be resolved."""
    return _read(host) is not None


def why_not_public(host: str) -> str | None:
    """The kind of private address this is, or None for a public one; names are not addresses."""
    address = _read(host)
    if address is None:
        return "not an address"
    return next((why for inner in _meant(address) if (why := _kind(inner)) is not None), None)


def _read(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None


def _meant(address: IPv4Address | IPv6Address) -> list[IPv4Address | IPv6Address]:
    """Every address a packet to this one may end at: IPv6 has five ways to say an IPv4 one."""
    if isinstance(address, IPv4Address) or address in (IPv6Address("::1"), IPv6Address("::")):
        return [address]
    inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(address in network for network in _EMBEDS_V4_LAST):
        inner.append(IPv4Address(int(address) & 0xFFFFFFFF))
    found = [one for one in inner if one is not None]
    return (
        list(found) if address.ipv4_mapped or address in _EMBEDS_V4_LAST[0] else [address, *found]
    )


def _kind(address: IPv4Address | IPv6Address) -> str | None:
    kinds = {
        "unspecified": address.is_unspecified,
        "loopback": address.is_loopback,
        _LINK_LOCAL: address.is_link_local,
        "multicast": address.is_multicast,
        "private": address.is_private,
        "not globally routable": not address.is_global,
    }
    return next((kind for kind, applies in kinds.items() if applies), None)
