"""The listener's end takes nothing from whoever has its connection's descriptor by then."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from control.sql.database import Database
from control.sql.listener import PostgresListener
from support.control import fresh_url, terminate_connections


class Reused(PostgresListener):
    """Puts a pipe where the connection's socket was, as soon as libpq has closed that."""

    socket: int
    pipe: tuple[int, int] | None = None
    is_heard = False

    def _receive(self, connection: "psycopg.Connection[Any]") -> None:
        if self.pipe is not None:
            raise psycopg.OperationalError("it has ended")
        try:
            self.socket = connection.fileno()
            super()._receive(connection)
        except psycopg.Error:
            self.pipe = os.pipe()
            os.dup2(self.pipe[0], self.socket)
            asyncio.get_running_loop().add_reader(self.socket, self._read)
            raise

    def _read(self) -> None:
        self.is_heard = True
        asyncio.get_running_loop().remove_reader(self.socket)


def test_a_descriptor_that_another_has_by_then_is_left_to_it(tmp_path: Path) -> None:
    async def act(database: Database) -> None:
        listener = Reused(database.engine, {"said": lambda _: None})
        task = asyncio.create_task(listener.run())
        async with asyncio.timeout(30):
            while not listener.listening:  # noqa: ASYNC110 - it connects
                await asyncio.sleep(0.01)
            await asyncio.to_thread(terminate_connections, database)
            while listener.listening:  # noqa: ASYNC110 - it ends
                await asyncio.sleep(0.01)
            assert listener.pipe is not None
            os.write(listener.pipe[1], b"!")
            while not listener.is_heard:  # noqa: ASYNC110 - the loop calls
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for number in (*listener.pipe, listener.socket):
            with suppress(OSError):  # libpq may close the last one, which it takes for its own
                os.close(number)

    with fresh_url("postgresql", tmp_path) as url:
        database = Database(url)
        asyncio.run(act(database))
        database.close()
