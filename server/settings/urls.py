"""The settings that are URLs or parts of one: where the database is, how this server is called
outside, whose web pages it serves, where models may come from. Pure."""

import re
from urllib.parse import urlsplit

from repository.sources.errors import BadSource
from repository.sources.urls.prefixes import prefix, shown_url
from server.settings.kinds import ValueKind

_DATABASES = ("sqlite", "postgresql", "postgres")
_SECRET = re.compile(r"(?<=:).*(?=@)|(?<=[?&]password=)[^&#]*", re.DOTALL)
"""A password before the host, whatever is in it, or among the options behind the "?"."""


def without_password(url: str) -> str:
    """The URL as it may be shown: `***` in place of a password."""
    scheme, mark, rest = url.partition("://") if "://" in url else ("", "", url)
    return scheme + mark + _SECRET.sub("***", rest)


def _read_database(text: str) -> str:
    scheme, mark, rest = text.partition("://")
    if not mark or scheme.partition("+")[0] not in _DATABASES:
        raise ValueError
    if scheme.startswith("sqlite"):
        if not rest.removeprefix("/") or not rest.startswith("/"):
            raise ValueError
    elif not urlsplit(text).path.strip("/"):  # urlsplit raises ValueError for a broken address
        raise ValueError
    return text


def _read_public_url(text: str) -> str:
    found = urlsplit(text)
    if found.scheme not in ("http", "https") or not found.hostname or found.username is not None:
        raise ValueError
    if found.path.strip("/") or found.query or found.fragment or found.port == 0:
        raise ValueError  # `port` itself raises ValueError for what is no port
    return f"{found.scheme}://{found.netloc}"


def _read_source(text: str) -> str:
    try:
        prefix(text)
    except BadSource:
        raise ValueError from None
    if shown_url(text) != text:
        raise ValueError  # it has a user, a password or a query
    return text


def _read_webhook_prefix(text: str) -> str:
    if urlsplit(text).scheme not in ("http", "https"):
        raise ValueError
    return _read_source(text)


def _read_origin(text: str) -> str:
    if text == "*":
        return text
    found = urlsplit(text)
    if not found.scheme or not found.hostname or found.username is not None:
        raise ValueError
    if found.path or found.query or found.fragment or found.port == 0:
        raise ValueError
    return text.lower()


def _read_host(text: str) -> str:
    if _HOST.fullmatch(text) is None:
        raise ValueError
    return text.lower()


_HOST = re.compile(r"\*|\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+")

ORIGIN = ValueKind(
    "ORIGIN",
    "of the form https://HOST or http://HOST:PORT, as browsers write it, or *",
    _read_origin,
    (str,),
)
HOST = ValueKind("HOST", "a host name or address without a port, or *", _read_host, (str,))
SOURCE = ValueKind(
    "PREFIX",
    "of the form https://HOST/PATH, s3://BUCKET/PATH, gs://BUCKET/PATH or hf://OWNER, without a "
    "user, a password or a query",
    _read_source,
    (str,),
    shown=shown_url,
)
DATABASE = ValueKind(
    "URL",
    "of the form sqlite:///PATH or postgresql://USER:PASSWORD@HOST:PORT/NAME",
    _read_database,
    (str,),
    shown=without_password,
)
PUBLIC_URL = ValueKind(
    "URL",
    "of the form https://HOST or http://HOST:PORT, without a path",
    _read_public_url,
    (str,),
    shown=without_password,
)
WEBHOOK_PREFIX = ValueKind(
    "PREFIX",
    "of the form https://HOST/PATH or http://HOST:PORT/PATH, without a user, a password or a query",
    _read_webhook_prefix,
    (str,),
    shown=shown_url,
)
