"""A lock that those who wait for it get in the order in which they asked; any thread may use it.

`threading.Lock` goes to whoever comes first when it is free, which is mostly the thread that has
just released it.
"""

import threading
from collections import deque


class WriterQueue:
    """Held by one at a time."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Lock] = deque()

    def acquire(self, timeout_s: float) -> bool:
        """Wait for one's turn; False when it has not come in time."""
        with self._guard:
            if not self._held:
                self._held = True
                return True
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        if turn.acquire(timeout=timeout_s):
            return True
        with self._guard:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return False
        return True  # it came at the last moment

    def release(self) -> None:
        """Give it to who has waited the longest."""
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False
