"""What a push says before its pack is read as it passes by, however it is cut into pieces."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from repository.git.commands import MOST_LINES, Commands
from repository.git.errors import TooManyCommands
from repository.git.rules import RefUpdate

OLD, NEW = "0" * 40, "1" * 40
PACK = b"PACK0000 and whatever else"


def line(text: str) -> bytes:
    return f"{len(text) + 4:04x}{text}".encode()


def read(body: bytes, piece_bytes: int = 1 << 16) -> Commands:
    """The commands of `body`, all of which has passed."""

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), piece_bytes):
            yield body[start : start + piece_bytes]

    async def main() -> bytes:
        return b"".join([piece async for piece in commands.of(pieces())])

    commands = Commands()
    assert asyncio.run(main()) == body
    return commands


@pytest.mark.parametrize("piece_bytes", [1, 3, 7, 1 << 16])
def test_refs_and_capabilities_are_known_before_the_pack(piece_bytes: int) -> None:
    body = (
        line(f"{OLD} {NEW} refs/heads/main\0 report-status side-band-64k agent=git/2.39.5\n")
        + line(f"{NEW} {OLD} refs/tags/v1\n")
        + b"0000"
        + PACK
    )
    commands = read(body, piece_bytes)
    assert commands.updates == [
        RefUpdate(OLD, NEW, "refs/heads/main"),
        RefUpdate(NEW, OLD, "refs/tags/v1"),
    ]
    assert {"report-status", "side-band-64k"} <= commands.capabilities
    assert commands.ended


def test_options_are_no_commands() -> None:
    first = line(f"{OLD} {NEW} refs/heads/main\0 push-options\n")
    lie = line(f"{OLD} {NEW} refs/heads/other\n")
    commands = read(first + b"0000" + lie + line("") + lie + b"0000" + PACK)
    assert [one.ref for one in commands.updates] == ["refs/heads/main"]
    assert commands.ended


@pytest.mark.parametrize(
    "body",
    [b"0000", b"", b"this is no packet line", b"0003", b"fff1" + b"x" * 70_000, b"+00aPACK"],
    ids=["probe", "nothing", "garbage", "length 3", "too long", "signed"],
)
def test_what_is_no_push_passes_for_git_to_refuse(body: bytes) -> None:
    assert read(body).updates == []


def test_one_line_too_many_is_refused() -> None:
    lines = line(f"{OLD} {NEW} refs/heads/x\n") * MOST_LINES
    assert len(read(lines).updates) == MOST_LINES
    with pytest.raises(TooManyCommands, match="push fewer branches and tags at a time"):
        read(lines + line("x"))
