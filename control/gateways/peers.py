"""Asks the gateways of all servers of the database at once, each through its control process.

A query goes to the channel of the control process that is to answer, and the answer to that of the
asker, by PostgreSQL's NOTIFY. A channel is named by the boot of its process, so that a predecessor
neither receives nor answers.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from sqlalchemy import select

from control.clock import text_of, utc_now
from control.errors import DatabaseGone
from control.gateways.link import GatewayUnreachable
from control.gateways.peer_messages import (
    MessageAssembler,
    PeerAnswer,
    PeerQuery,
    payloads_of,
)
from control.gateways.queries import AnsweredRequests, RequestsQuery
from control.servers import list_servers
from control.sql.channels import say
from control.sql.database import Database
from control.tables import Server

ANSWER_S = 5.0
"""How long the other servers have; each gives its own gateway three seconds."""

MOST_ANSWERS = 4
"""Queries of others that are answered at once; what comes beyond is not."""

MOST_QUERIES = 16
"""Of our own that wait for others at once."""

NO_ANSWER = f"it did not answer within {ANSWER_S:g} s"
TOO_MANY = "too many requests for other servers wait; try again"
OTHERS = "the other servers"
"""Who is silent while the database is, which knows their names."""

_log = logging.getLogger(__name__)

AskRequests = Callable[[RequestsQuery], Awaitable[AnsweredRequests]]
"""Asks this server's gateway. Raises GatewayUnreachable."""


@dataclass(frozen=True, slots=True)
class ServerAnswers:
    """What each server said, by id, and why the others did not."""

    answers: dict[str, AnsweredRequests]
    silent: dict[str, str]


class PeerGateways:
    """On the loop. `own` asks this server's gateway. On SQLite there are no others."""

    def __init__(self, database: Database, server: str, boot: str, own: AskRequests) -> None:
        self._database = database
        self._server = server
        self._boot = boot
        self._own = own
        self._assembler = MessageAssembler()
        self._waiting: dict[str, dict[str, asyncio.Future[PeerAnswer]]] = {}
        self._answering: set[asyncio.Task[None]] = set()

    async def ask(self, query: RequestsQuery) -> ServerAnswers:
        """Of this server and of all others. Raises GatewayUnreachable where none answers."""
        own, others = await asyncio.gather(self._ask_own(query), self._ask_others(query))
        answers, silent = dict(others.answers), dict(others.silent)
        if isinstance(own, AnsweredRequests):
            answers[self._server] = own
        else:
            silent[self._server] = str(own)
        if not answers:
            raise GatewayUnreachable("; ".join(f"{one}: {why}" for one, why in silent.items()))
        return ServerAnswers(answers, silent)

    def receive(self, payload: str) -> None:
        """Another server's query, or the answer to one of ours."""
        if not payload:
            return
        try:
            message = self._assembler.add(payload, time.monotonic())
        except ValueError as error:
            _log.warning("what another server said is ignored: %s", error)
            return
        match message:
            case PeerQuery():
                self._start_answer(message)
            case PeerAnswer():
                waiting = self._waiting.get(message.number, {}).get(message.server)
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)

    async def close(self) -> None:
        """End the answers that are being given."""
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    # our own queries

    async def _ask_own(self, query: RequestsQuery) -> AnsweredRequests | GatewayUnreachable:
        try:
            return await self._own(query)
        except GatewayUnreachable as error:
            return error

    async def _ask_others(self, query: RequestsQuery) -> ServerAnswers:
        """What this server's gateway keeps can be read while the database is gone, or is busy."""
        if self._database.is_sqlite:
            return ServerAnswers({}, {})
        try:
            peers, silent = await asyncio.to_thread(self._peers)
            if peers and len(self._waiting) >= MOST_QUERIES:
                return ServerAnswers({}, silent | dict.fromkeys(peers, TOO_MANY))
            answers = await self._answers_of(query, peers)
        except DatabaseGone as error:
            return ServerAnswers({}, {OTHERS: str(error)})
        for server, answer in answers.items():
            if answer is None or answer.answer is None:
                silent[server] = NO_ANSWER if answer is None else answer.problem
        found = {
            server: answer.answer
            for server, answer in answers.items()
            if answer is not None and answer.answer is not None
        }
        return ServerAnswers(found, silent)

    async def _answers_of(
        self, query: RequestsQuery, peers: Mapping[str, str]
    ) -> dict[str, PeerAnswer | None]:
        """Of each peer within `ANSWER_S`; None of those that have not answered by then."""
        number, loop = secrets.token_hex(8), asyncio.get_running_loop()
        waiting: dict[str, asyncio.Future[PeerAnswer]] = {
            server: loop.create_future() for server in peers
        }
        if not waiting:
            return {}
        self._waiting[number] = waiting
        payloads = payloads_of(PeerQuery(number, self._boot, query), number)
        try:
            async with asyncio.timeout(ANSWER_S):
                for boot in peers.values():
                    await self._say(boot, payloads)
                await asyncio.wait(waiting.values())
        except TimeoutError:
            pass
        finally:
            del self._waiting[number]
        return {
            server: answer.result() if answer.done() else None for server, answer in waiting.items()
        }

    def _peers(self) -> tuple[dict[str, str], dict[str, str]]:
        """Boots of the other servers that are alive, by id, and why the rest is not asked."""
        with self._database.reading() as session:
            views = [one for one in list_servers(session, utc_now()) if one.id != self._server]
            boots = {one.id: one.boot for one in session.scalars(select(Server))}
        alive = {one.id: boots[one.id] for one in views if one.alive}
        dead = {
            one.id: f"its last heartbeat was at {text_of(one.seen_at)}"
            for one in views
            if not one.alive
        }
        return alive, dead

    # those of others

    def _start_answer(self, query: PeerQuery) -> None:
        if len(self._answering) >= MOST_ANSWERS:
            return  # the asker's deadline says so
        task = asyncio.create_task(self._answer(query))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, query: PeerQuery) -> None:
        try:
            found = await self._own(query.query)
            answer = PeerAnswer(query.number, self._server, found)
        except GatewayUnreachable as error:
            answer = PeerAnswer(query.number, self._server, None, str(error))
        payloads = payloads_of(answer, secrets.token_hex(8))
        try:
            await self._say(query.boot, payloads)
        except DatabaseGone as error:
            _log.info("a query of another server is not answered: %s", error)

    async def _say(self, boot: str, payloads: list[str]) -> None:
        """Raises DatabaseGone."""
        await asyncio.to_thread(say, self._database, channel_of(boot), payloads)


def channel_of(boot: str) -> str:
    """The channel of the control process with this boot."""
    return f"modelyard_{boot}"
