"""A second server of the same database, whose versions change all the time: live updates for
`benchmarks.console`. `python -m benchmarks.console_updates DATABASE_URL` runs until it is stopped.

It writes what a control process writes when its gateway tells of loads, through the same code, so
that each update is an event that every screen about versions shows.
"""

import sys
import time

from control import loads, servers
from control.sql.database import Actor, Database

UPDATES_PER_S, TRANSACTIONS_PER_S = 100, 10
SERVER = "other"
_STATES = ("READY", "LOADING")


def main() -> int:
    database = Database(sys.argv[1])
    actor = Actor(f"server:{SERVER}", "system")
    with database.change(actor) as tx:
        servers.register(tx, SERVER, "benchmark", "1", "")
    due, number = time.monotonic(), 0
    while True:
        with database.change(actor) as tx:
            servers.heartbeat(tx, SERVER, "benchmark")
            loads.record(tx, SERVER, rows(number))
        number += 1
        due = max(due + 1 / TRANSACTIONS_PER_S, time.monotonic() - 1.0)
        time.sleep(max(0.0, due - time.monotonic()))


def rows(number: int) -> list[loads.Row]:
    """All that the server says; each of its versions is in another state than the time before."""
    state = _STATES[number % len(_STATES)]
    each = UPDATES_PER_S // TRANSACTIONS_PER_S
    return [(f"m{model:03}", 1, state, "") for model in range(each)]


if __name__ == "__main__":
    raise SystemExit(main())
