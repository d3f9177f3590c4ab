"""PostgreSQL's LISTEN: calls the receivers of a channel, at no cost while nothing is sent."""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

RETRY_S = 2.0
"""Between two tries to listen."""

_log = logging.getLogger(__name__)

Receiver = Callable[[str], None]
"""Gets the payload of what is said on a channel, and "" when the listener has connected: what was
sent before was not received. Brief, on the loop."""


class PostgresListener:
    """On the loop, which waits for the socket; with a connection of its own beside the pool's."""

    def __init__(self, engine: Engine, channels: Mapping[str, Receiver]) -> None:
        self._engine = engine
        self._channels = channels
        self.listening = False

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._listen()
            except (psycopg.Error, SQLAlchemyError, OSError) as error:
                _log.debug("nothing is received from other servers: %s", error)
            finally:
                self.listening = False
            await asyncio.sleep(RETRY_S)

    async def _listen(self) -> None:
        with closing(await asyncio.to_thread(self._connect)) as connection:
            loop = asyncio.get_running_loop()
            ended: asyncio.Future[None] = loop.create_future()

            def readable() -> None:
                try:
                    self._receive(connection)
                except psycopg.Error as error:
                    if not ended.done():
                        ended.set_exception(error)

            # libpq closes its descriptor by itself when the server has gone, and another connection
            # may have the number at once; nobody else has this one.
            own = os.dup(connection.fileno())
            loop.add_reader(own, readable)
            self.listening = True
            try:
                for receive in self._channels.values():
                    receive("")
                readable()
                await ended
            finally:
                loop.remove_reader(own)
                os.close(own)

    def _connect(self) -> "psycopg.Connection[Any]":
        """Blocks; of the pool's kind, and no longer the pool's."""
        pooled = self._engine.raw_connection()
        connection = pooled.driver_connection
        pooled.detach()
        assert isinstance(connection, psycopg.Connection)
        try:
            connection.rollback()
            connection.autocommit = True
            for channel in self._channels:
                connection.execute(SQL("LISTEN {}").format(Identifier(channel)))
        except BaseException:
            connection.close()
            raise
        return connection

    def _receive(self, connection: "psycopg.Connection[Any]") -> None:
        """Raises psycopg.Error when the connection has ended."""
        connection.pgconn.consume_input()
        while (notified := connection.pgconn.notifies()) is not None:
            receive = self._channels.get(notified.relname.decode())
            if receive is not None:
                receive(notified.extra.decode())
