"""Fetching from a site of a test, or being refused, and what lies there then."""

import os
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from repository.sources.errors import (
    SourceError,
)
from repository.sources.fetch import FetchResult, fetch
from repository.sources.limits import FetchLimits
from repository.sources.urls.url import parse
from support.sources import (
    LIMITS,
    MIB,
    Seen,
    Site,
)

BODY = os.urandom(3 * MIB + 17)
ONE_TRY = replace(LIMITS, attempts=1)


async def fetched(
    web: Site,
    into: Path,
    path: str = "/m.onnx",
    limits: FetchLimits = LIMITS,
    expected: str | None = None,
) -> FetchResult:
    return await fetch(parse(web.url + path, [web.url]), into, limits, Seen(), expected)


async def refusal(
    web: Site, into: Path, path: str = "/m.onnx", limits: FetchLimits = ONE_TRY
) -> str:
    with pytest.raises(SourceError) as caught:
        await fetched(web, into, path, limits)
    return str(caught.value)


def names(into: Path) -> list[str]:
    return sorted(str(path.relative_to(into)) for path in into.rglob("*") if path.is_file())


def digest_of(files: dict[str, bytes]) -> str:
    rows = (f"{name}\0{len(body)}\0{sha256(body).hexdigest()}\n" for name, body in files.items())
    return f"sha256:{sha256(''.join(sorted(rows)).encode()).hexdigest()}"
