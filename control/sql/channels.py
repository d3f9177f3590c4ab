"""What servers of one database say to each other: PostgreSQL's NOTIFY, received without polling."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from control.sql.database import NOTIFY, Database

if TYPE_CHECKING:
    from control.sql.listener import PostgresListener


class ServerChannels:
    """On the loop. `receive`: who is called with what is said on each channel, see `listener`. On
    SQLite, which one server uses alone, nobody says anything."""

    _listener: "PostgresListener | None" = None

    def __init__(self, database: Database, receive: Mapping[str, Callable[[str], None]]) -> None:
        self._database = database
        self._receive = receive

    def complete(self) -> bool:
        """Whether all that other servers commit is notified: who looks for it can take its time."""
        return self._database.is_sqlite or (self._listener is not None and self._listener.listening)

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
