"""What servers of one database say to each other: PostgreSQL's NOTIFY, heard without polling."""

from collections.abc import Callable, Mapping

from sqlalchemy import text

from control.sql.database import Database

_NOTIFY = text("SELECT pg_notify(:channel, :payload)")


class ServerChannels:
    """On the loop. `hear`: who is called with what is said on each channel, see `listener`. On
    SQLite, which one server uses alone, nobody says anything."""

    def __init__(self, database: Database, hear: Mapping[str, Callable[[str], None]]) -> None:
        self._database = database
        self._hear = hear

    async def run(self) -> None:
        """Until cancelled."""
        if self._database.is_sqlite:
            return
        from control.sql.listener import PostgresListener

        await PostgresListener(self._database.engine, self._hear).run()


def say(database: Database, channel: str, payloads: list[str]) -> None:
    """In this order, in one transaction; each payload below 8,000 bytes. Blocks. Raises
    DatabaseGone."""
    with database.answering(), database.engine.begin() as connection:
        for payload in payloads:
            connection.execute(_NOTIFY, {"channel": channel, "payload": payload})
