"""ETags: the revision a change is held against, and a digest of all that was answered. Pure."""

import hashlib
import re
from collections.abc import Mapping

from control.authentication.origins import SAFE
from control.http_errors import MalformedRequest

_TAG = re.compile(r'"(?P<revision>\d{1,18})[.][0-9a-f]{16}"')
_WEAK = re.compile(r"^W/")


def etag_of(body: bytes, revision: int | None = None) -> str:
    """`"7.0123456789abcdef"`: revision 7; a weak tag for what has no revision."""
    digest = hashlib.sha256(body).hexdigest()[:16]
    return f'W/"{digest}"' if revision is None else f'"{revision}.{digest}"'


def expected_revision(method: str, headers: Mapping[str, str]) -> int | None:
    """The revision a change was made against, 0 for "it is not there yet" (If-None-Match: *);
    None when the client does not mind.

    Only the revision counts: what else a view shows may have moved on. Raises MalformedRequest.
    """
    if method not in SAFE and headers.get("if-none-match", "").strip() == "*":
        return 0
    if_match = headers.get("if-match", "*").strip()
    if if_match == "*":
        return None
    found = _TAG.fullmatch(if_match)
    if found is None:
        raise MalformedRequest(
            f"If-Match is {if_match[:80]}; give the one ETag you were answered, or *", "If-Match"
        )
    return int(found["revision"])


def is_unchanged(if_none_match: str | None, etag: str) -> bool:
    """Whether the client has exactly this already."""
    if if_none_match is None:
        return False
    tags = [tag.strip() for tag in if_none_match.split(",")]
    return "*" in tags or _WEAK.sub("", etag) in (_WEAK.sub("", tag) for tag in tags)
