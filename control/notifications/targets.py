"""Where webhooks may lead: the SSRF guard of imports, for URLs that messages are sent to. Pure.

A name is resolved, and what it resolves to is judged, when `control.notifications.sender` connects.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from control.errors import Invalid
from repository.sources.errors import BadSource
from repository.sources.urls.addresses import is_literal, why_not_public
from repository.sources.urls.prefixes import covered, place, prefix, split

SETTING = "--notification-allow"
LONGEST_URL = 2_048


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """A URL taken apart. `host` is what is resolved and what a certificate must name; `authority`
    the Host header; `path` with its query. A `trusted` one may be private, and without TLS."""

    host: str
    port: int
    authority: str
    path: str
    tls: bool
    trusted: bool


def target_of(url: str, allowed: Sequence[str] = ()) -> WebhookTarget:
    """Raises Invalid with what would work. `allowed`: prefixes from the server's settings; with any
    given, every other place is refused."""
    if len(url) > LONGEST_URL:
        raise Invalid(f"the URL has {len(url)} characters; at most {LONGEST_URL}", "url")
    try:
        parts = split(url)
        where, prefixes = place(parts), tuple(prefix(one) for one in allowed)
    except BadSource as error:
        raise Invalid(str(error), "url") from None
    shown = hidden(url)
    if parts.scheme not in ("http", "https"):
        raise Invalid(f"'{shown}' is neither https:// nor http://", "url")
    if "@" in parts.netloc:
        raise Invalid(
            f"'{shown}' has a user or a password before the host; give a receiver that checks the "
            "signature instead",
            "url",
        )
    trusted, host = covered(where, prefixes), (parts.hostname or "").rstrip(".")
    if prefixes and not trusted:
        known = ", ".join(f"'{one}'" for one in allowed)
        raise Invalid(f"'{shown}' is not below a prefix of {SETTING}: {known}", "url")
    if parts.scheme == "http" and not trusted:
        raise Invalid(
            f"'{shown}' is not encrypted; use https://, or {_remedy(parts.scheme)}", "url"
        )
    if not trusted and is_literal(host) and (why := why_not_public(host)):
        raise Invalid(refusal(url, why), "url")
    assert where.port is not None
    path = parts.path or "/"
    return WebhookTarget(
        host=host,
        port=where.port,
        authority=parts.netloc,
        path=f"{path}?{parts.query}" if parts.query else path,
        tls=parts.scheme == "https",
        trusted=trusted,
    )


def refusal(url: str, why: str) -> str:
    """The words for a host whose address is not public."""
    scheme = url.partition("://")[0]
    return f"'{hidden(url)}' leads to an address that is {why}; {_remedy(scheme)}"


def hidden(url: str) -> str:
    """The URL as it is shown: path and query may be the secret of whoever receives."""
    scheme, mark, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    host, question, query = host.rpartition("@")[2].partition("?")
    more = "…" if path or query else ""
    return f"{scheme}{mark}{host.partition('#')[0]}{slash or question}{more}"[:300]


def _remedy(scheme: str) -> str:
    return f"an administrator can allow it with {SETTING}={scheme}://HOST/"
