"""The pushes under way: git is given a key, its hooks show it, and we know whose push it is."""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from control.git.push.pre_receive import PushContext
from repository.git.errors import Busy

MOST_PUSHES = 256
"""Under way at once, in all repositories together."""

LIFETIME_S = 2 * 3600.0
"""Longer than any push takes; its key goes with the request in any case."""


class PushKeys:
    """Keys live as long as the request that brought the push. On the loop only."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._contexts: dict[str, tuple[PushContext, float]] = {}

    def __len__(self) -> int:
        return len(self._contexts)

    @contextmanager
    def issued(self, pushing: PushContext) -> Iterator[str]:
        """A new key that nobody can guess, found until the block ends. Raises Busy."""
        if len(self._contexts) >= MOST_PUSHES:
            raise Busy(f"{MOST_PUSHES} pushes are under way; try again in a moment")
        key = secrets.token_urlsafe(32)
        self._contexts[key] = pushing, self._monotonic() + LIFETIME_S
        try:
            yield key
        finally:
            del self._contexts[key]

    def underway(self) -> set[str]:
        """The pushes that git is still busy with, by the ids of their rows."""
        return {
            push_id for pushing, _ in self._contexts.values() for push_id in pushing.ids.values()
        }

    def repositories(self) -> set[str]:
        """Those that a push is under way to."""
        return {pushing.repository for pushing, _ in self._contexts.values()}

    def find(self, key: str) -> PushContext | None:
        """Whose push it is; None for a key that was never given or is over."""
        pushing, expires = self._contexts.get(key, (None, 0.0))
        return pushing if self._monotonic() < expires else None
