"""What servers of one database say to each other: PostgreSQL's NOTIFY, received without polling."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from control.sql.database import NOTIFY, Database

if TYPE_CHECKING:
    from control.sql.listener import PostgresListener


ALONE_S, SHARED_S = 60.0, 5.0
"""Between two looks for commits of which all are told, in a database of one server and of
several."""


class ServerChannels:
    """On the loop. `receive`: who is called with what is said on each channel, see `listener`. On
    SQLite, which one server uses alone, nobody says anything."""

    _listener: "PostgresListener | None" = None

    def __init__(self, database: Database, receive: Mapping[str, Callable[[str], None]]) -> None:
        self._database = database
        self._receive = receive

    def idle_s(self, usual_s: float) -> float:
        """How long who looks for commits each `usual_s` may take, being told of all of them: then
        a look is only the net below. A database of several servers is to be missed sooner."""
        if self._database.is_sqlite:
            return ALONE_S
        listening = self._listener is not None and self._listener.listening
        return max(usual_s, SHARED_S) if listening else usual_s

    async def run(self) -> None:
        """Until cancelled."""
        if self._database.is_sqlite:
            return
        from control.sql.listener import PostgresListener

        self._listener = PostgresListener(self._database.engine, self._receive)
        await self._listener.run()


def say(database: Database, channel: str, payloads: list[str]) -> None:
    """In this order, in one transaction; each payload below 8,000 bytes. Blocks. Raises
    DatabaseGone."""
    with database.answering(), database.engine.begin() as connection:
        for payload in payloads:
            connection.execute(NOTIFY, {"channel": channel, "payload": payload})
