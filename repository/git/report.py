"""git's answer to a push, read as it passes by: how it ended, and room for words of our own.

git unpacks and checks a pack before it asks any hook. What it refuses there is told by itself
alone, on the way back, and this is where we read it.
"""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from repository.git.text import plain_text

_RESULTS, _WORDS = b"\x01", b"\x02"
_MOST_WORDS_BYTES = 8192
_LENGTH = re.compile(rb"[0-9a-f]{4}")


@dataclass(frozen=True, slots=True)
class ReceiveReport:
    """`unpacked`: "ok", git's reason why not, or "" when it ended without one. `refused`: ref →
    why. `words`: the last lines it told the pusher, as plain text."""

    unpacked: str
    refused: Mapping[str, str]
    words: Sequence[str]


Explain = Callable[[ReceiveReport], Awaitable[Sequence[str]]]
"""Called at the end of a push; returns lines that the pusher is to read before git's last word."""


async def reported(answer: AsyncGenerator[bytes], explain: Explain) -> AsyncGenerator[bytes]:
    """The same answer, with the lines that `explain` returns; close it as you would `answer`."""
    reading = _ReportReader()
    async with aclosing(answer) as chunks:
        async for chunk in chunks:
            if reading.is_complete():
                yield chunk
                continue
            if passed := reading.pass_on(chunk):
                yield passed
            if reading.is_complete():
                yield (
                    _packet_lines(await explain(reading.report()), reading.banded) + reading.rest()
                )
    if rest := reading.rest():
        yield rest


def packet(payload: bytes) -> bytes:
    return b"%04x%s" % (len(payload) + 4, payload)


def refusal(lines: Sequence[str], why: str, refs: Sequence[str], banded: bool) -> bytes:
    """A whole answer in git's place: nothing was unpacked, and no ref was moved."""
    results = packet(f"unpack {why}\n".encode())
    for ref in refs:
        results += packet(f"ng {ref} {why}\n".encode(errors="surrogateescape"))
    results += b"0000"
    if not banded:
        return results
    pieces = (results[start : start + 60_000] for start in range(0, len(results), 60_000))
    return (
        _packet_lines(lines, banded)
        + b"".join(packet(_RESULTS + piece) for piece in pieces)
        + b"0000"
    )


def _packet_lines(lines: Sequence[str], banded: bool) -> bytes:
    return b"".join(packet(_WORDS + f"{line}\n".encode()) for line in lines) if banded else b""


class _ReportReader:
    """What has come of an answer; its results are held back until they are complete.

    They are packets in packets, which end with one of no length; a post-receive hook may speak
    after them.
    """

    def __init__(self) -> None:
        self.banded = self._complete = False
        self._waiting = bytearray()
        self._held = bytearray()
        self._results = bytearray()
        self._unpacked = ""
        self._refused: dict[str, str] = {}
        self._words = bytearray()

    def is_complete(self) -> bool:
        return self._complete

    def pass_on(self, chunk: bytes) -> bytes:
        """What the client may have at once."""
        self._waiting += chunk
        passed = bytearray()
        for one in _packets(self._waiting):
            passed += self._note(one)
            if self._complete:
                break
        return bytes(passed)

    def rest(self) -> bytes:
        """What was held back, and what has not been looked at."""
        rest = bytes(self._held + self._waiting)
        self._held.clear()
        self._waiting.clear()
        return rest

    def report(self) -> ReceiveReport:
        lines = self._words.replace(b"\r", b"\n").split(b"\n")
        words = tuple(filter(None, (plain_text(bytes(line)) for line in lines)))
        return ReceiveReport(self._unpacked, self._refused, words)

    def _note(self, one: bytes) -> bytes:
        """What of a packet goes on at once: all of it, or nothing while it is held back."""
        band, payload = one[4:5], one[5:]
        if band == _WORDS:
            self.banded = True
            self._words += payload
            del self._words[:-_MOST_WORDS_BYTES]
            return one
        if band == _RESULTS and not payload:  # only keeps the connection alive
            return one
        self.banded = self.banded or band == _RESULTS
        self._held += one
        self._results += payload if self.banded else one
        for result in _packets(self._results):
            self._take(result)
        return b""

    def _take(self, result: bytes) -> None:
        self._complete = result == b"0000"
        word, _, rest = result[4:].decode(errors="surrogateescape").rstrip("\n").partition(" ")
        if word == "unpack":
            self._unpacked = rest
        elif word == "ng":
            ref, _, why = rest.partition(" ")
            self._refused[ref] = why


def _packets(waiting: bytearray) -> Iterator[bytes]:
    """Cut whole packets, with their lengths, off the front of `waiting`."""
    while len(waiting) >= 4 and _LENGTH.fullmatch(waiting[:4]):
        length = max(4, int(waiting[:4], 16))
        if len(waiting) < length:
            return
        one = bytes(waiting[:length])
        del waiting[:length]
        yield one
