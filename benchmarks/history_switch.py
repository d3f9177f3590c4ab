"""A server that `benchmarks.request_history` starts, otherwise as `modelyard`: SIGUSR1 takes the
request history from its data plane, SIGUSR2 gives it back, SIGHUP gives it back with a clock.

What each call took is written to the file $HISTORY_CALLS_FILE at the next of these signals, in ns:
by that clock of a function that does nothing, for what the clock takes, and of the history; in CPU
time of making records of many.
"""

import json
import os
import signal
import sys
from pathlib import Path
from time import perf_counter_ns, thread_time_ns
from typing import Any

from schedulers.reply import Reply
from server import gateway
from server.cli.main import main
from server.dataplane import DataPlane

CALLS = "HISTORY_CALLS_FILE"
NOTHING, ENDED, RECORDS = "nothing", "ended", "records"


class SwitchedDataPlane(DataPlane):
    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._calls: dict[str, list[int]] = {}
        self._history_ended, self._make_records = self.history.ended, self.history._record
        self.history._record = self._record  # type: ignore[method-assign]
        signal.signal(signal.SIGUSR1, lambda *_: self._switch(None))
        signal.signal(signal.SIGUSR2, lambda *_: self._switch(self._history_ended))
        signal.signal(signal.SIGHUP, lambda *_: self._switch(self._timed))

    def _switch(self, ended: Any) -> None:
        if self._calls.get(ENDED):
            Path(os.environ[CALLS]).write_text(json.dumps(self._calls))
        self._calls = {NOTHING: [], ENDED: [], RECORDS: []}
        self._ended = ended

    def _timed(self, reply: Reply) -> None:
        began = perf_counter_ns()
        _nothing(reply)
        between = perf_counter_ns()
        self._history_ended(reply)
        over = perf_counter_ns()
        self._calls[NOTHING].append(between - began)
        self._calls[ENDED].append(over - between)

    def _record(self) -> None:
        began = thread_time_ns()
        self._make_records()
        if RECORDS in self._calls:
            self._calls[RECORDS].append(thread_time_ns() - began)


def _nothing(reply: Reply) -> None:
    pass


if __name__ == "__main__":
    gateway.DataPlane = SwitchedDataPlane  # type: ignore[attr-defined]
    sys.exit(main())
