"""git's garbage collection, run where it is worth it and nobody is pushing.

Each push stays a pack of its own, and a repository with many of them gets slow. A collection that
is cut off, in whatever way, leaves the repository as it was, and what it had written is swept.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from pathlib import Path

from repository.git import bare
from repository.git.bare import BareRepository
from repository.git.errors import GitError

LOOK_S = 600.0
"""Between two looks at all repositories."""

WORTH_PACKS = 50

REST_S = 24 * 3600.0
"""After a failed collection its repository is left alone so long."""

_log = logging.getLogger(__name__)


def is_due(packs: int, receiving: bool, now: float, not_before: float) -> bool:
    return packs >= WORTH_PACKS and not receiving and now >= not_before


class GitGarbageCollector:
    """One repository at a time; `pushed` names those that this process is receiving a push for."""

    def __init__(
        self,
        store: Path,
        pushed: Callable[[], Collection[str]],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._pushed = pushed
        self._monotonic = monotonic
        self._not_before: dict[str, float] = {}

    async def look(self) -> None:
        """Collect what is due. A push that comes meanwhile is let in: git keeps for two weeks what
        nothing refers to yet."""
        names = await asyncio.to_thread(bare.names, self._store)
        self._not_before = {n: at for n, at in self._not_before.items() if n in names}
        for name in names:
            try:
                await self._one(bare.find(self._store, name))
            except GitError as error:
                self._not_before[name] = self._monotonic() + REST_S
                _log.warning("git gc of the repository '%s' failed: %s", name, error)

    async def _one(self, one: BareRepository) -> None:
        packs, others = await asyncio.to_thread(lambda: (bare.packs(one), bare.is_receiving(one)))
        receiving = others or one.name in self._pushed()
        not_before = self._not_before.get(one.name, 0.0)
        if is_due(packs, receiving, self._monotonic(), not_before):
            began = self._monotonic()
            await bare.collect(one)
            took = self._monotonic() - began
            _log.info(
                "repository '%s': repacked %d packs into one in %.1f s", one.name, packs, took
            )
