"""URLs of models: what each scheme means and which are refused. Pure: nothing is resolved here."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, unquote, urljoin, urlsplit

from repository.sources.errors import BadSource
from repository.sources.names import why_unsafe
from repository.sources.urls.addresses import is_literal, why_not_public
from repository.sources.urls.prefixes import Prefix, covered, place, prefix, shown_url, split

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.zst")
ARTEFACTS = (".onnx", ".pt2", ".safetensors")

CREDENTIALS = {
    "s3": "give the server a role, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "give the server a service account, or GOOGLE_APPLICATION_CREDENTIALS",
    "hf": "set HF_TOKEN for the server",
    "http": "put them into a file that the server's variable NETRC names",
    "https": "put them into a file that the server's variable NETRC names",
}
"""Per scheme, where the server takes credentials from."""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_HUB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_SECRET = re.compile(
    r"sig|signature|.*[-_](signature|credential|token|secret)|token|api_?key|key|.*password"
)


@dataclass(frozen=True, slots=True)
class BucketUrl:
    """Every object below a prefix; `key_prefix` is empty or ends with '/'. `scheme`: s3, gs."""

    text: str
    scheme: str
    bucket: str
    key_prefix: str
    allowed: tuple[Prefix, ...] = ()


@dataclass(frozen=True, slots=True)
class HubFolder:
    """A repository's files on a hub, at a revision; `folder` is empty or ends with '/'."""

    text: str
    repository: str
    revision: str
    folder: str
    allowed: tuple[Prefix, ...] = ()


@dataclass(frozen=True, slots=True)
class WebFile:
    """One file: an archive to unpack, or an artefact. `suffix` is one of ARCHIVES or ARTEFACTS."""

    text: str
    url: str
    name: str
    suffix: str
    allowed: tuple[Prefix, ...] = ()


Source = BucketUrl | HubFolder | WebFile


@dataclass(frozen=True, slots=True)
class Hop:
    """One address to ask; a `trusted` one lies below an allowed prefix and may be private."""

    url: str
    origin: tuple[str, str, int | None]
    trusted: bool


def admitted(text: str, allowed: Sequence[str] = ()) -> Source:
    """The source a URL names, if it may be asked for models; raises `BadSource`.

    With no prefix allowed, that is any public web server and the hub. A bucket is read with the
    server's own credentials, so it takes a prefix that allows it.
    """
    source = parse(text, allowed)
    if isinstance(source, BucketUrl) and not allowed:
        remedy = f"an operator can allow it with --import-allow={source.scheme}://{source.bucket}/"
        what = "is a bucket, read with the server's credentials"
        raise BadSource(f"'{source.text}' {what}; {remedy}")
    return source


def parse(text: str, allowed: Sequence[str] = ()) -> Source:
    """The source a URL names; raises `BadSource` with the reason and what would work.

    `allowed` are URL prefixes from the server's settings; with any given, every other place is
    refused. With none, any public host is accepted.
    """
    parts = split(text)
    _refuse_credentials(parts)
    where, prefixes = place(parts), tuple(prefix(one) for one in allowed)
    if prefixes and not covered(where, prefixes):
        choices = ", ".join(f"'{one}'" for one in allowed)
        raise BadSource(f"'{shown_url(text)}' is not below an allowed source: {choices}")
    if parts.scheme in ("http", "https"):
        return _web_file(text, prefixes)
    if parts.query or parts.fragment or parts.port:
        raise BadSource(f"'{shown_url(text)}': {parts.scheme}:// has no port, query or fragment")
    return _hub_folder(parts, prefixes) if parts.scheme == "hf" else _bucket(parts, prefixes)


def hop(url: str, trusted: Sequence[Prefix]) -> Hop:
    """A web address as one to ask; raises `BadSource` if it is no place for the server to go."""
    parts = split(url)
    if parts.scheme not in ("http", "https"):
        raise BadSource(f"'{shown_url(url)}' is neither http:// nor https://")
    if "@" in parts.netloc:
        raise _with_credentials(parts)
    where = place(parts)
    is_covered = covered(where, trusted)
    host = parts.hostname or ""
    if not is_covered and is_literal(host) and (why := why_not_public(host)):
        raise private(url, why)
    return Hop(
        parts._replace(fragment="").geturl(), (where.scheme, where.host, where.port), is_covered
    )


def redirected(before: Hop, location: str, trusted: Sequence[Prefix]) -> Hop:
    """Where a redirect leads; raises `BadSource` for private addresses and for https to http."""
    after = hop(urljoin(before.url, location), trusted)
    if before.origin[0] == "https" and after.origin[0] == "http" and not after.trusted:
        here, there = shown_url(before.url), shown_url(after.url)
        raise BadSource(
            f"'{here}' redirects to '{there}', which is not encrypted; use that host's https"
        )
    return after


def private(url: str, why: str) -> BadSource:
    """The refusal of a host whose address is not public."""
    remedy = "an operator can allow it as a source prefix in the server's settings"
    return BadSource(f"'{shown_url(url)}' leads to an address that is {why}; {remedy}")


def _web_file(text: str, allowed: tuple[Prefix, ...]) -> WebFile:
    url = hop(text, allowed).url
    name = unquote(urlsplit(url).path).rpartition("/")[2]
    suffix = next((end for end in (*ARCHIVES, *ARTEFACTS) if name.lower().endswith(end)), "")
    if not suffix or len(name) == len(suffix) or why_unsafe(name):
        accepted = ", ".join(f"'{end}'" for end in (*ARCHIVES, *ARTEFACTS))
        raise BadSource(f"'{shown_url(text)}' names no file that ends in one of {accepted}")
    return WebFile(shown_url(text), url, name, suffix, allowed)


def _bucket(parts: SplitResult, allowed: tuple[Prefix, ...]) -> BucketUrl:
    name = parts.netloc
    if not _BUCKET.fullmatch(name) or ".." in name or is_literal(name):
        raise BadSource(f"'{name}' is no bucket's name: lower-case letters, digits, '-', '.', '_'")
    key = unquote(parts.path).strip("/")
    _refuse_unsafe(parts, key)
    return BucketUrl(parts.geturl(), parts.scheme, name, f"{key}/" if key else "", allowed)


def _hub_folder(parts: SplitResult, allowed: tuple[Prefix, ...]) -> HubFolder:
    name, _, folder = parts.path.strip("/").partition("/")
    name, at, revision = name.partition("@")
    revision, folder = unquote(revision), unquote(folder).strip("/")
    if not _HUB_NAME.fullmatch(parts.netloc) or not _HUB_NAME.fullmatch(name):
        forms = "hf://owner/name, hf://owner/name@revision or hf://owner/name@revision/folder"
        raise BadSource(f"'{parts.geturl()}' names no repository of a hub; write {forms}")
    if at and (not revision or revision.startswith("-") or why_unsafe(revision)):
        raise BadSource(f"'{parts.geturl()}': '{revision}' is no branch, tag or commit")
    _refuse_unsafe(parts, folder)
    repository = f"{parts.netloc}/{name}"
    return HubFolder(
        parts.geturl(), repository, revision or "main", f"{folder}/" if folder else "", allowed
    )


def _refuse_unsafe(parts: SplitResult, path: str) -> None:
    if path and (why := why_unsafe(path)):
        raise BadSource(f"'{shown_url(parts.geturl())}': its path {why}")


def _refuse_credentials(parts: SplitResult) -> None:
    secret = any(_SECRET.fullmatch(name.lower()) for name, _ in parse_qsl(parts.query))
    if "@" in parts.netloc or secret:
        raise _with_credentials(parts)


def _with_credentials(parts: SplitResult) -> BadSource:
    remedy = CREDENTIALS[parts.scheme]
    text = shown_url(parts.geturl())
    return BadSource(f"'{text}' has credentials in it, which would be logged and stored; {remedy}")
