"""The deadlines of one connection's streams: a look at all of them now and then.

One timer per connection, made by `server.http2.connection`, instead of one or two per request.
Requests that come too slowly are answered so; answers that are not taken are dropped.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable

from server.http2.limits import GrpcLimits
from server.http2.sender import Sender
from server.http2.session import Http2Session
from server.http2.stall_detector import BEGINS, PeerWait, StallDetector

_CONNECTION = "connection"

_log = logging.getLogger(__name__)


class StreamTimeouts:
    """Looks at the streams of `session` until it is stopped. `cut_off` ends the connection."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: GrpcLimits,
        session: Http2Session,
        sender: Sender,
        cut_off: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._limits = limits
        self._session = session
        self._sender = sender
        self._cut_off = cut_off
        self._receiving = StallDetector(limits.receive_timeout_s)
        self._sending = StallDetector(limits.send_timeout_s)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = self._loop.call_later(self._limits.look_s, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self.start()
        self._end_slow_requests()
        self._drop_unread_answers()

    def _end_slow_requests(self) -> None:
        limits, streams = self._limits, self._session.streams
        for stream_id in self._receiving.look(self._requests(), limits.look_s):
            stream = streams.get(stream_id) if isinstance(stream_id, int) else None
            if stream is not None and stream.receiver is not None:
                text = (
                    f"the request came too slowly for {limits.receive_timeout_s:g} s "
                    "(--grpc-receive-timeout-secs): its message or its end is missing"
                )
                _log.info("%s: %s", stream.client, text)
                stream.receiver.expired(text)

    def _requests(self) -> dict[Hashable, PeerWait]:
        """What each request lacks. One of which nothing came may stand behind others."""
        waits: dict[Hashable, PeerWait] = {}
        for stream in self._session.streams.values():
            wait = stream.receiver.awaits() if stream.receiver is not None else None
            if wait is BEGINS:
                wait = wait._replace(moved=self._session.received)
            if wait is not None:
                waits[stream.id] = wait
        return waits

    def _drop_unread_answers(self) -> None:
        limits = self._limits
        for key in self._sending.look(self._answers(), limits.look_s):
            text = f"read its responses too slowly for {limits.send_timeout_s:g} s"
            if key == _CONNECTION:
                _log.info("gRPC connection closed: the client %s (--grpc-send-timeout-secs)", text)
                self._cut_off()
                return
            stream = self._session.streams.get(key) if isinstance(key, int) else None
            if stream is not None:
                _log.info("%s %s (--grpc-send-timeout-secs)", stream.client, text)
                self._session.cancel(stream)

    def _answers(self) -> dict[Hashable, PeerWait]:
        streams = self._session.streams
        waits: dict[Hashable, PeerWait] = {}
        whole = self._sender.awaits_any(streams.values())
        if whole is not None:
            waits[_CONNECTION] = whole
        for stream in streams.values():
            wait = self._sender.awaits(stream)
            if wait is not None:
                waits[stream.id] = wait
        return waits
