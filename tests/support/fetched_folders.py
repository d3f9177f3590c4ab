"""Fetching a folder into a place of its own, or being refused, and what lies there then."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from repository.sources.errors import SourceError
from repository.sources.fetch import FetchResult, fetch
from repository.sources.limits import FetchLimits
from repository.sources.urls.url import parse
from support.sources import LIMITS, MIB, Answer, Seen

FILES = {
    "config.pbtxt": b"name: 'm'",
    "1/model.onnx": os.urandom(2 * MIB + 5),
    "1/labels of it.txt": b"",
}
ONE_TRY = replace(LIMITS, attempts=1)


async def fetched(url: str, into: Path, limits: FetchLimits = LIMITS) -> FetchResult:
    return await fetch(parse(url), into, limits, Seen())


async def refusal(url: str, into: Path, limits: FetchLimits = ONE_TRY) -> str:
    with pytest.raises(SourceError) as caught:
        await fetched(url, into, limits)
    return str(caught.value)


def content(into: Path) -> dict[str, bytes]:
    found = (path for path in into.rglob("*") if path.is_file())
    return {str(path.relative_to(into)): path.read_bytes() for path in found}


def json_answer(value: object, **headers: str) -> Answer:
    body = json.dumps(value).encode()
    return Answer(200, {**headers, "Content-Length": str(len(body))}, body)
