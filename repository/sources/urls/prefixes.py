"""Prefixes of URLs that the server's settings allow, and which URLs lie below them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

from repository.sources.errors import BadSource

SCHEMES = ("s3", "gs", "hf", "http", "https")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Prefix:
    """A scheme, a host (bucket, or owner on the hub) with its port, and the path's first parts."""

    scheme: str
    host: str
    port: int | None
    parts: tuple[str, ...]

    def covers(self, other: "Prefix") -> bool:
        """Whether `other` lies at or below this one, whole path parts compared."""
        return (self.scheme, self.host, self.port) == (
            other.scheme,
            other.host,
            other.port,
        ) and other.parts[: len(self.parts)] == self.parts


def prefix(text: str) -> Prefix:
    """Read a prefix, or a URL as the place it names; raises `BadSource` when it is malformed."""
    return place(split(text))


def covered(url: Prefix, prefixes: Sequence[Prefix]) -> bool:
    return any(one.covers(url) for one in prefixes)


def split(text: str) -> SplitResult:
    """The URL's parts; raises `BadSource` for characters and forms on which readers disagree."""
    if not text.isascii() or not text.isprintable() or any(sign in text for sign in ' \\<>"^`{|}'):
        raise BadSource(f"{text[:200]!a} is no URL: percent-encode all but plain ASCII")
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        raise BadSource(f"'{text}' is no URL: {error}") from error
    if parts.scheme not in SCHEMES:
        accepted = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise BadSource(f"'{shown_url(text)}' does not begin with one of {accepted}")
    if not parts.hostname:
        raise BadSource(f"'{shown_url(text)}' names no host, bucket or owner after '://'")
    return parts


def place(parts: SplitResult) -> Prefix:
    """Where a URL leads, in the form in which places are compared."""
    port = parts.port or _PORTS.get(parts.scheme)
    return Prefix(parts.scheme, (parts.hostname or "").rstrip("."), port, _path(parts))


def shown_url(text: str) -> str:
    """The URL for messages and logs: without a user, a password or a query, which may be secret."""
    head, mark, rest = text.partition("://")
    host, slash, path = rest.partition("/")
    path = path.partition("?")[0].partition("#")[0]
    return f"{head}{mark}{host.rpartition('@')[2].partition('?')[0]}{slash}{path}"[:500]


def _path(parts: SplitResult) -> tuple[str, ...]:
    once = unquote(parts.path)
    for path in (once, unquote(once)):
        # A server may decode twice, so what a second decoding reveals counts as well.
        if "\\" in path or not path.isprintable() or {".", ".."} & set(path.split("/")):
            text = shown_url(parts.geturl())
            raise BadSource(f"'{text}' has '.', '..', a backslash or a control character in it")
    names = tuple(name for name in once.split("/") if name)
    if parts.scheme == "hf" and names:
        # The revision is no part of the place: hf://owner/name covers every revision of it.
        return (names[0].partition("@")[0], *names[1:])
    return names
