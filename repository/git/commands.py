"""What a push says before its pack, read as it passes by: which refs it is to move, and how.

git keeps these lines in memory and has no bound for them; they get one here.
"""

import re
from collections.abc import AsyncIterator, Iterator

from repository.git.errors import TooManyCommands
from repository.git.names import is_oid
from repository.git.rules import RefUpdate

MOST_LINES, MOST_BYTES = 1000, 2**20
"""Of one push, options and all; a push of more refs than are allowed is to get as far as the hook,
which tells its pusher by name what is wrong."""

_LENGTH = re.compile(rb"[0-9a-fA-F]{4}")
_LONGEST = 65520


class Commands:
    """The lines of one push; `updates` and `capabilities` are whole once its pack has begun."""

    def __init__(self) -> None:
        self.updates: list[RefUpdate] = []
        self.capabilities: set[str] = set()
        self._waiting = bytearray()
        self._lines = self._bytes = 0
        self._sections = 0
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether what follows is the pack."""
        return self._ended

    async def of(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The same body, read by the way. Raises TooManyCommands in its midst."""
        async for chunk in body:
            if not self._ended:
                self._read(chunk)
            yield chunk

    def _read(self, chunk: bytes) -> None:
        self._waiting += chunk
        for line in self._cut():
            self._lines += 1
            if line is None:
                self._end_section()
            else:
                self._bytes += len(line)
                self._note(line)
            if self._ended:
                self._waiting.clear()
                return
            if self._lines > MOST_LINES or self._bytes > MOST_BYTES:
                raise TooManyCommands(
                    f"the push names more than {MOST_LINES} refs, or takes more than {MOST_BYTES} "
                    "bytes to name them; push fewer branches and tags at a time"
                )

    def _cut(self) -> Iterator[bytes | None]:
        """The whole lines that wait, None where a section ends."""
        while len(self._waiting) >= 4:
            head = bytes(self._waiting[:4])
            length = int(head, 16) if _LENGTH.fullmatch(head) else 3
            if length == 3 or length > _LONGEST:  # no line to git either: it is the one to say so
                self._ended = True
                self._waiting.clear()
                return
            if len(self._waiting) < length:
                return
            line = bytes(self._waiting[4:length])
            del self._waiting[: max(length, 4)]
            yield line if length >= 4 else None

    def _note(self, line: bytes) -> None:
        text, _, features = line.partition(b"\0")
        self.capabilities.update(features.decode(errors="replace").split())
        old, _, rest = text.decode(errors="surrogateescape").rstrip("\n").partition(" ")
        new, _, ref = rest.partition(" ")
        if is_oid(old) and is_oid(new) and self._sections == 0:
            self.updates.append(RefUpdate(old, new, ref))

    def _end_section(self) -> None:
        """The commands are followed by the options, where the client said so, or by the pack."""
        self._sections += 1
        self._ended = self._sections == 2 or "push-options" not in self.capabilities
