"""Whether a request was meant for us and made by us: Host against DNS rebinding, Origin. Pure."""

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from control.authentication.origins import ANY, LOOPBACK, SAFE, host_name, same_origin
from control.http_errors import CrossOriginWrite, WrongHost


def known_hosts(
    admin_address: str, public_url: str, allowed_hosts: Iterable[str] = ()
) -> frozenset[str]:
    """Names without port that a Host header may have.

    An address that means every interface adds no name: give --public-url for those. The
    "*" of `allowed_hosts` adds none either: sessions ride on cookies here.
    """
    names = LOOPBACK | {name.strip("[]").lower() for name in allowed_hosts} - {ANY}
    if admin_address not in ("", "0.0.0.0", "::"):
        names |= {admin_address.strip("[]").lower()}
    if public_url:
        names |= {(urlsplit(public_url).hostname or "").lower()}
    return names


def check_host(host: str, hosts: Iterable[str]) -> None:
    """`host` is the Host header. Raises WrongHost."""
    name = host_name(host)
    if name not in hosts:
        raise WrongHost(
            f"this server is not '{name[:100]}'; it answers to {', '.join(sorted(hosts))}; "
            "name another with --public-url or --allowed-hosts"
        )


def check_origin(method: str, headers: Mapping[str, str], public_url: str) -> None:
    """Refuse what a page of another site wants changed, whatever credentials it rides on.

    Raises CrossOriginWrite.
    """
    if method in SAFE:
        return
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise CrossOriginWrite("a page of another site may not change anything here")
    origin = headers.get("origin")
    ours = (headers.get("host", ""), urlsplit(public_url).netloc)
    if origin is not None and not same_origin(origin, *ours):
        raise CrossOriginWrite(f"a page of {origin[:100]} may not change anything here")
