"""The pump of notifications: while it holds the lease, makes messages of events and sends them.

What is sent, and when again, is `control.notifications.policy`'s to say. A pump that dies leaves
its messages in the outbox; the next one sends them, with the same ids.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial

from control import crash
from control.clock import utc_now
from control.errors import ControlError, DatabaseGone, LostLease
from control.loops.deployer import LEASE, LEASE_S
from control.loops.wake_event import IdleSeconds, WakeEvent, as_usual
from control.notifications import outbox
from control.notifications.messages import OutgoingMessage, message_of
from control.notifications.sender import WebhookSender
from control.problems.service import acknowledged_versions
from control.sql import leases
from control.sql.database import SYSTEM, Database, Fence

LOOK_S, IDLE_S, GONE_S = 1.0, 5.0, 2.0
"""Between two looks at what was written where not all that is committed rings: with webhooks,
without any, and while the database does not answer."""

MOST_AT_ONCE = 4
"""Messages under way, each to another webhook."""

MOST_ROUNDS = 5
"""Of events, in one transaction."""

_log = logging.getLogger(__name__)


class NotificationPump:
    """On the loop. `boot`: this control process's; `console_url` gives where people reach it."""

    def __init__(
        self,
        database: Database,
        boot: str,
        sender: WebhookSender,
        console_url: Callable[[], str],
        idle_s: IdleSeconds = as_usual,
    ) -> None:
        self._database = database
        self._boot = boot
        self._sender = sender
        self._console_url = console_url
        self._news = WakeEvent(idle_s)
        self.committed = self._news.committed
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._seen = 0

    async def run(self) -> None:
        """Until cancelled; messages under way are left to the next pump."""
        try:
            while True:
                pause_s, rest = GONE_S, self._news.rest
                try:
                    pause_s = await self._turn()
                    if pause_s == IDLE_S:
                        rest = self._news.rest_idle
                except DatabaseGone as error:
                    _log.debug("notifications are blocked: %s", error)
                except LostLease as error:
                    _log.info("notifications: %s", error)
                await rest(pause_s)
        finally:
            for task in self._sending.values():
                task.cancel()
            await asyncio.gather(*self._sending.values(), return_exceptions=True)
            self._sender.close()

    async def _turn(self) -> float:
        """One look, and what it is time for; how long to rest unless there is news."""
        found = await asyncio.to_thread(self._look)
        if not found.watched:
            return IDLE_S
        if not found.behind:
            self._seen = found.newest
        pause_s = self._pause_s(found.due)
        if not found.behind and pause_s > 0:
            return min(pause_s, LOOK_S)
        fence = await asyncio.to_thread(leases.take, self._database, LEASE, self._boot, LEASE_S)
        if fence is None:
            self._news.hush()  # that was our own try to get it
            return LOOK_S
        for message in await asyncio.to_thread(self._deal, fence, frozenset(self._sending)):
            task = asyncio.create_task(self._send(message, fence))
            self._sending[message.webhook] = task
            task.add_done_callback(partial(self._finish_send, message.webhook))
        return 0.0 if len(self._sending) < MOST_AT_ONCE and found.behind else LOOK_S

    def _pause_s(self, due: Mapping[str, datetime]) -> float:
        """Until the first message of a webhook that nothing is being sent to is due."""
        if len(self._sending) >= MOST_AT_ONCE:
            return LOOK_S
        now = utc_now()
        waits = [
            (at - now).total_seconds() for name, at in due.items() if name not in self._sending
        ]
        return max(0.0, min(waits, default=LOOK_S))

    def _look(self) -> outbox.OutboxStatus:
        with self._database.reading() as session:
            return outbox.status_of(session, self._seen)

    def _deal(self, fence: Fence, busy: frozenset[str]) -> list[OutgoingMessage]:
        """Raises LostLease."""
        with self._database.change(SYSTEM, fence) as tx:
            tx.alone()
            known = acknowledged_versions(tx.session, tx.now)
            for _ in range(MOST_ROUNDS):
                if not outbox.advance(tx, known):
                    break
            claimed = outbox.claim(tx, busy, MOST_AT_ONCE - len(busy), known)
            url = self._console_url()
            return [message_of(tx, row, url) for row in claimed]

    async def _send(self, message: OutgoingMessage, fence: Fence) -> None:
        crash.point("notification.claimed")
        answer = await self._sender.send(message)
        crash.point("notification.sent")

        def settle() -> None:
            with self._database.change(SYSTEM, fence) as tx:
                outbox.settle(tx, message.delivery, message.attempts, answer)

        try:
            await asyncio.to_thread(settle)
        except ControlError as error:  # it is sent again, with the same id
            _log.info("the outcome of notification %s is not kept: %s", message.delivery, error)
            return
        if not answer.accepted:
            _log.warning(
                "webhook %s: notification %s did not arrive: %s",
                message.webhook,
                message.delivery,
                answer.words,
            )

    def _finish_send(self, webhook: str, _: "asyncio.Task[None]") -> None:
        del self._sending[webhook]
        self._news.ring()
