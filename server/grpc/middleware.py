"""What stands around the gRPC methods: the locks of restricted protocols, the access log.

`server.grpc.service` hands both to `server.http2`. The guard asks the gate as well
(`server.grpc.admission`), and the log is there only when its setting is.
"""

import time
from typing import Any

from server.dataplane import DataPlane
from server.grpc.admission import holder_of, recognised
from server.http2.calls.grpc_call import GrpcCall
from server.http2.calls.head import RequestHead
from server.http2.calls.service import Answer, CallClasses, Guard, UnaryCall
from server.http2.calls.status import CallFailed
from server.http2.calls.streaming_call import Converse, StreamingCall
from server.http2.stream import Http2Stream
from server.logs.access import AccessLog, AccessLogEntry
from server.settings.restricted import GRPC_PREFIX, RPCS, Locks, grpc_text, read_locks
from server.settings.table import Settings
from server.signature import Signature


def guard_of(settings: Settings, dataplane: DataPlane) -> Guard:
    """Refuses calls of a restricted protocol that lack its header, then those the gate refuses."""
    locks = read_locks(settings.grpc_restricted_protocol, GRPC_PREFIX)
    return _CallAuthorizer(locks, dataplane)


class _CallAuthorizer:
    def __init__(self, locks: Locks, dataplane: DataPlane) -> None:
        self._locks = locks
        self._dataplane = dataplane

    def __call__(self, head: RequestHead) -> object:
        if not self._locks and not self._dataplane.authorizer.watches:
            return None
        method = head.path.rpartition("/")[2]
        lock = self._locks.get(RPCS[method])
        if lock is not None and not lock.opens(text_metadata(head)):
            raise CallFailed("UNAVAILABLE", grpc_text(lock))
        return recognised(self._dataplane.authorizer, method, head)


def text_metadata(head: RequestHead) -> list[tuple[str, str]]:
    """What the client sent beside its messages, without what is binary."""
    return [(name, value) for name, value in head.metadata if isinstance(value, str)]


def kinds_of(log: AccessLog) -> CallClasses:
    """Classes of calls that tell `log` how they ended."""
    facts: dict[str, Any] = {"log": log, "__slots__": ()}
    return CallClasses(
        type("LoggedCall", (_LoggedUnaryCall,), facts),
        type("LoggedConversation", (_LoggedStreamingCall,), facts),
    )


class _LoggedGrpcCall(GrpcCall):
    """A call that counts its bytes and tells the access log of its end. `log` is on the class."""

    __slots__ = ()
    logged = True
    log: AccessLog
    told: "_CallRecord"

    def received(self, data: bytes, last: bool) -> None:
        self.told.bytes_in += len(data)
        super().received(data, last)  # type: ignore[misc]

    def fail(self, code: str, text: str) -> None:
        if not self.over:
            self.told.status = code
        super().fail(code, text)

    def aborted(self) -> None:
        self.told.status = "CANCELLED"
        super().aborted()  # type: ignore[misc]

    def _leave(self) -> Http2Stream | None:
        stream = super()._leave()
        if stream is not None and self.log.chosen():
            holder = holder_of(self)
            principal = "" if holder is None else holder.principal.id
            client = self.log.client(self.told.client, self.head.metadata)
            self.log.write(self.told.entry(self.head.path, principal, client))
        return stream


class _LoggedUnaryCall(_LoggedGrpcCall, UnaryCall):
    __slots__ = ("told",)

    def __init__(self, stream: Http2Stream, head: RequestHead, limit: int, answer: Answer) -> None:
        self.told = _CallRecord(stream)
        super().__init__(stream, head, limit, answer)

    def finish(self, message: bytes) -> None:
        if not self.over:
            self.told.status, self.told.bytes_out = "OK", len(message)
        super().finish(message)


class _LoggedStreamingCall(_LoggedGrpcCall, StreamingCall):
    __slots__ = ("told",)

    def __init__(
        self, stream: Http2Stream, head: RequestHead, limit: int, converse: Converse
    ) -> None:
        self.told = _CallRecord(stream)
        super().__init__(stream, head, limit, converse)

    async def write(self, message: bytes) -> None:
        self.told.bytes_out += len(message)
        await super().write(message)

    def _end(self) -> None:
        if not self.over:
            self.told.status = "OK"
        super()._end()


class _CallRecord:
    """What is known of a call so far. A call that ends without a status ran into its deadline."""

    def __init__(self, stream: Http2Stream) -> None:
        self.client = stream.client
        self.began_ns = time.monotonic_ns()
        self.bytes_in = self.bytes_out = 0
        self.status = "DEADLINE_EXCEEDED"
        self.id = self.model = self.version = self.route = ""

    def entry(self, path: str, principal: str, client: str) -> AccessLogEntry:
        return AccessLogEntry(
            protocol="grpc",
            client=client,
            method=path.rpartition("/")[2],
            path=path,
            status=self.status,
            began_ns=self.began_ns,
            duration_us=(time.monotonic_ns() - self.began_ns) // 1000,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            id=self.id,
            model=self.model,
            version=self.version,
            principal=principal,
            route=self.route,
        )


def note(call: GrpcCall, request_id: str, signature: Signature, arm: str) -> None:
    """Let the access log know who answers a call; `arm` as trailers say it."""
    if isinstance(call, _LoggedGrpcCall):
        call_record = call.told
        call_record.id, call_record.route = request_id, arm
        call_record.model, call_record.version = signature.model, str(signature.version)
