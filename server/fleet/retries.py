"""Try loads again that lacked something, when there may be enough of it."""

import asyncio
import logging
from collections.abc import Callable

from server.fleet.managed_model import ManagedModel, VersionFailure

_log = logging.getLogger(__name__)


class LoadRetries:
    """On the loop's thread; `change(model)` sees to it that a model is being changed."""

    def __init__(self, change: Callable[[ManagedModel], None]) -> None:
        self._change = change
        self._planned: set[VersionFailure] = set()
        self._closed = False

    def plan(self, resident: ManagedModel) -> None:
        for number, failure in resident.failed.items():
            if failure.pause_s is not None and failure not in self._planned:
                self._planned.add(failure)
                later = asyncio.get_running_loop().call_later
                later(failure.pause_s, self._retry, resident, number, failure)

    def close(self) -> None:
        self._closed = True

    def _retry(self, resident: ManagedModel, number: int, failure: VersionFailure) -> None:
        self._planned.discard(failure)
        if not self._closed and resident.forget(number, failure):
            _log.info("%s %d: retrying", resident.name, number)
            self._change(resident)
