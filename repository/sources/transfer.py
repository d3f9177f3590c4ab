"""Fetches one file: opens it where the last attempt stopped, again and again but not for ever."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TypeVar

from repository.sources.digest import matches
from repository.sources.errors import FetchFailed, Interrupted
from repository.sources.journal import Journal, TransferRecord
from repository.sources.limits import FetchLimits
from repository.sources.part_file import PartFile
from repository.sources.progress import Meter
from repository.sources.stores.store import Checksum, OpenTransfer, RemoteFile, SourceStore
from repository.sources.threads import stoppable

ADVANCE_BYTES = 1 << 20
"""An attempt that brought this much counts as a success, however it ended."""

_LONGEST_PAUSE_S = 30.0

Result = TypeVar("Result")


class Transfer:
    """Brings the files of one store into one folder, one after the other."""

    def __init__(
        self, store: SourceStore, folder: Path, journal: Journal, limits: FetchLimits, meter: Meter
    ) -> None:
        self._store = store
        self._folder = folder
        self._journal = journal
        self._limits = limits
        self._meter = meter

    async def file(self, remote: RemoteFile) -> None:
        """Fetch and verify one file; raises `FetchFailed` or `TooLarge`, its part stays."""
        if not self._is_there(remote):
            await self._fetch(remote)
        self._meter.finished()

    def _is_there(self, remote: RemoteFile) -> bool:
        """Whether an earlier call brought it; it was verified then."""
        begun, path = self._journal.files.get(remote.path), self._folder / remote.path
        if begun is None or not begun.whole or begun.listed != remote.version:
            return False
        if not path.is_file():
            return False
        self._meter.begin(remote.path, path.stat().st_size)
        return True

    async def _fetch(self, remote: RemoteFile) -> None:
        part = PartFile(self._folder / remote.path)
        try:
            begun = self._journal.files.get(remote.path)
            if begun is None or begun.listed != remote.version or not begun.validator:
                part.empty()
            self._meter.begin(remote.path, part.size)
            await persist(lambda: self._attempt(remote, part), self._limits, lambda: part.size)
            part.keep()
        except FetchFailed as error:
            raise FetchFailed(f"'{remote.path}' at byte {part.size}: {error}") from error
        finally:
            part.close()
        self._note(remote, "", whole=True)

    async def _attempt(self, remote: RemoteFile, part: PartFile) -> None:
        checksum = await self._receive(remote, part)
        if checksum and not await stoppable(lambda stop: matches(part.path, checksum, stop)):
            self._restart(part)
            problem = (
                f"its {checksum.algorithm} is not the {checksum.hexdigest} that the store gives"
            )
            raise Interrupted(f"{problem}; the bytes were damaged on the way")

    async def _receive(self, remote: RemoteFile, part: PartFile) -> Checksum | None:
        """Take bytes until the store ends; returns what to verify them with."""
        begun = self._journal.files.get(remote.path)
        if remote.size is not None and part.size >= remote.size > 0 and begun is not None:
            # All was there when the last call ended: one byte proves that it is still the same.
            part.shorten()
            self._meter.dropped(1)
        opening = self._store.open(remote, part.size, begun.validator if begun else "")
        opened = await self._in_time(opening.__aenter__())
        try:
            self._go_on(remote, part, opened)
            await self._drain(opened, part)
        finally:
            await opening.__aexit__(None, None, None)
        return opened.checksum or remote.checksum

    def _go_on(self, remote: RemoteFile, part: PartFile, opened: OpenTransfer) -> None:
        if opened.start != part.size:
            self._restart(part)
        if opened.size is not None:
            self._meter.size(opened.size)
        self._note(remote, opened.validator, whole=False)

    async def _drain(self, opened: OpenTransfer, part: PartFile) -> None:
        async with aclosing(opened.chunks) as chunks:
            while chunk := await self._in_time(anext(chunks, b"")):
                self._meter.received(len(chunk))
                await part.add(chunk)
        await part.flush()
        if opened.size is not None and part.size != opened.size:
            received = part.size
            if received > opened.size:
                self._restart(part)
            raise Interrupted(f"{received} bytes arrived where the store announced {opened.size}")

    async def _in_time(self, wait: Awaitable[Result]) -> Result:
        seconds = self._limits.stall_s
        try:
            async with asyncio.timeout(seconds) as deadline:
                return await wait
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise Interrupted(f"stalled: no byte for {seconds:g} s") from error

    def _restart(self, part: PartFile) -> None:
        self._meter.dropped(part.size)
        part.empty()

    def _note(self, remote: RemoteFile, validator: str, whole: bool) -> None:
        begun = TransferRecord(remote.version, validator, whole)
        if self._journal.files.get(remote.path) != begun:
            self._journal.note(remote.path, begun)


async def persist(
    attempt: Callable[[], Awaitable[Result]],
    limits: FetchLimits,
    reached: Callable[[], int] = lambda: 0,
) -> Result:
    """Try until it is done, or until `limits.attempts` in a row failed without advancing.

    `reached` tells the bytes there so far. Raises `FetchFailed` with the last attempt's reason.
    """
    failures, furthest = 0, reached()
    while True:
        try:
            return await attempt()
        except Interrupted as error:
            advanced = reached() >= furthest + ADVANCE_BYTES
            failures = 1 if advanced else failures + 1
            furthest = max(furthest, reached())
            if failures >= limits.attempts:
                raise FetchFailed(f"{error} (after {failures} attempts in a row)") from error
            pause_s = max(error.after_s, _pause_s(limits, failures))
        await asyncio.sleep(pause_s)


def _pause_s(limits: FetchLimits, failures: int) -> float:
    longest = min(limits.pause_s * 2.0 ** (failures - 1), _LONGEST_PAUSE_S)
    return longest * random.uniform(0.5, 1.0)
