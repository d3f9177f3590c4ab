"""Hosts and origins as headers name them, and what all listeners take for harmless. Pure.

Apart from `server.access.sites`, because the control process needs these and none of its errors.
"""

from urllib.parse import urlsplit

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
ANY = "*"
_DEFAULT_PORTS = {"http": "80", "https": "443"}


def same_origin(origin: str, *hosts: str) -> bool:
    """Whether an Origin (or a Referer) has the host and port of one of `hosts`. Browsers leave a
    scheme's own port out, and proxies write it into Host."""
    try:
        found = urlsplit(origin)
    except ValueError:
        return False
    port = _DEFAULT_PORTS.get(found.scheme)
    if port is None or not found.netloc:
        return False
    return _with_port(found.netloc, port) in {
        _with_port(host, port) for host in hosts if host.strip()
    }


def _with_port(host: str, default: str) -> str:
    name = host.strip().lower()
    has_port = name.rpartition("]")[2].count(":") == 1
    return name if has_port else f"{name}:{default}"


def host_name(host: str) -> str:
    """The name in a Host header, without port and brackets, in lower case."""
    name = host.strip().lower()
    if name.startswith("["):
        inner, _, port = name[1:].partition("]")
        return name if port and not port.startswith(":") else inner
    return name.rpartition(":")[0] if name.count(":") == 1 else name
