"""One life of a worker, as its model's scripts talk to the server.

Implements `backends.process.call_link.CallConnection`; what that does not let any thread call is on
the loop's thread.
"""

import asyncio
import json
import os
import socket
import time
from collections.abc import Sequence
from math import prod

from backends.errors import ExecutionFailed
from backends.process.call_link import CallingInstance
from backends.process.call_messages import (
    MOST_MESSAGE_BYTES,
    CallCancel,
    CallRead,
    CallRequest,
    ControlAnswer,
    ControlRequest,
    FamilyRequest,
    FromWorker,
    MetricsQuery,
    MetricValues,
    decode_from_worker,
)
from backends.process.layout import unpack
from backends.process.messages import encode
from backends.process.region import message_region
from backends.seam import Member, Tensors
from repository.config.callees import callees_in, covers
from repository.config.tensors import Array
from repository.process.channel import ChannelMessage
from repository.process.loop_channel import LoopChannel
from schedulers.calls import ModelCall
from schedulers.errors import QueueFull
from schedulers.policy.waits import Version
from schedulers.request import NO_PARAMETERS
from schedulers.request import Sequence as SequenceKey
from server.admit import MOST_STRINGS
from server.bls.causes import (
    Causes,
    CausingRequest,
    has_nobody,
    latest_deadline_ns,
    principals_of,
)
from server.bls.control import CONTROL_NOT_ALLOWED, control
from server.bls.open_call import OpenCall
from server.bls.outgoing import error_part
from server.bls.surroundings import ScriptServices
from server.bls.waiting import Waiting
from server.codec.json_parameters import check_parameters
from server.errors import InvalidRequest

MOST_OPEN_CALLS = 256
"""Of one instance, without an answer yet."""
MOST_OPEN_CONTROLS = 16
"""Requests to control models, of one instance, without an answer yet."""


class ScriptConnection:
    """Answers one worker's model, until either is gone."""

    def __init__(
        self,
        services: ScriptServices,
        waiting: Waiting,
        instance: CallingInstance,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.instance = instance
        self._services = services
        self._waiting = waiting
        self._loop = loop
        self._causes = Causes(instance.version.name)
        self._calls: dict[int, OpenCall] = {}
        self._controls: set[asyncio.Task[None]] = set()
        self._channel: LoopChannel | None = None
        self._has_causes = False
        self._closed = False
        version = instance.version
        self._version: Version = (version.name, version.number)
        self._covered = callees_in(version.config.parameters)

    # from any thread

    def cancelled(self, member: Member) -> None:
        if self._has_causes:
            self._loop.call_soon_threadsafe(self._causes.cancelled, member)

    def left(self, members: Sequence[Member]) -> None:
        if self._has_causes:
            self._loop.call_soon_threadsafe(self._left, members)

    def close(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._close)
        except RuntimeError:  # the loop is closed, and this process ends
            return

    # on the loop

    def start(self, connection: socket.socket) -> None:
        """Read from this socket, which is the connection's from now on."""
        if self._closed:
            connection.close()
            return
        self._channel = LoopChannel(
            connection, self._loop, MOST_MESSAGE_BYTES, self._receive, self._broken
        )

    @property
    def spec(self) -> object:
        return self.instance.spec

    def end_call(self, number: int, refusal: str) -> None:
        """See `server.bls.waiting.Caller`."""
        if (call := self._calls.get(number)) is not None:
            call.end_with(ExecutionFailed(refusal))

    def query_metrics(self) -> None:
        """Ask for `MetricValues`."""
        if self._channel is not None:
            self._channel.send(encode(MetricsQuery()))

    def _receive(self, received: ChannelMessage) -> None:
        payload, fd = received
        try:
            message = decode_from_worker(payload)
            if not isinstance(message, CallRequest | ControlRequest):
                self._heed(message)
                return
            region = message_region(message.data, fd)
            fd = -1
        finally:
            if fd >= 0:
                os.close(fd)
        if isinstance(message, CallRequest):
            tensors = self._tensors(message, region)
            if tensors is not None:
                self._call(message, tensors)
            return
        self._begin_control(message, region)

    def _heed(self, message: FromWorker) -> None:
        match message:
            case CallRead():
                if (call := self._calls.get(message.number)) is not None:
                    call.read(message.taken)
            case CallCancel():
                if (call := self._calls.get(message.number)) is not None:
                    call.cancel()
            case FamilyRequest():
                error = self._services.metrics.register(self, self._version[0], message)
                self._send(encode(ControlAnswer(message.number, error, ready=not error)), -1)
            case MetricValues():
                self._services.metrics.receive(self, message)

    def _broken(self, error: Exception | None) -> None:
        """The worker has gone, or must."""
        if isinstance(error, OSError):
            self.instance.kill(f"could not be sent an answer ({error.strerror}) and was killed")
        elif error is not None:
            self.instance.kill(f"sent an invalid message ({error}) and was killed")
        self._close()

    def _close(self) -> None:
        self._closed = True
        if self._channel is not None:
            self._channel.close()
        for call in list(self._calls.values()):
            call.cancel()
        for task in self._controls:
            task.cancel()
        self._causes.close()
        self._services.metrics.gone(self)

    def _send(self, payload: bytes, fd: int) -> None:
        if self._channel is not None:
            self._channel.send(payload, fd)
        elif fd >= 0:
            os.close(fd)

    def _left(self, members: Sequence[Member]) -> None:
        self._causes.left(members)
        self._has_causes = not self._causes.is_empty

    # one call

    def _tensors(self, request: CallRequest, region: Array) -> Tensors | None:
        """The inputs, None where there are too many strings to unpack them here, and the script is
        told. Raises ValueError for dimensions that would make them seem fewer."""
        strings = 0
        for block in request.blocks:
            if block.datatype == "BYTES":
                strings += sum(prod(shape) for shape in block.shapes if shape is not None)
        if strings <= MOST_STRINGS:
            return unpack(request.blocks, 1, region)[0]
        error = InvalidRequest(
            f"too many string elements for model '{request.model}': {strings}, and a request may "
            f"have {MOST_STRINGS}; split it into smaller ones"
        )
        self._refuse(request, error)
        return None

    def _call(self, request: CallRequest, inputs: Tensors) -> None:
        try:
            if len(self._calls) >= MOST_OPEN_CALLS or request.number in self._calls:
                raise QueueFull(
                    f"model '{self._version[0]}' has {MOST_OPEN_CALLS} calls without an answer, "
                    "the most that one instance may have"
                )
            self._has_causes = True  # before `causing`: who leaves behind it is told
            causes = self._causes.of(self.instance.causing(request.causes))
            call = self._model_call(request, inputs, causes)
            reply = self._services.caller.call(call)
        except Exception as error:  # noqa: BLE001 - every error is the script's to see
            self._refuse(request, error)
            return
        activity = self.instance.activity
        opened = OpenCall(request, causes, self._send, self._ended, activity)
        self._calls[request.number] = opened
        activity.calls += 1
        activity.progress += 1
        deadline_ns = call.deadline_ns
        seconds = (deadline_ns - time.monotonic_ns()) / 1e9 if deadline_ns else None
        circle = self._waiting.begin(self, request, call.context)
        opened.follow(reply, seconds)
        if circle:
            opened.end_with(ExecutionFailed(circle))

    def _refuse(self, request: CallRequest, error: Exception) -> None:
        self._send(error_part(request.number, request.model, error), -1)

    def _model_call(
        self, request: CallRequest, inputs: Tensors, causes: Sequence[CausingRequest]
    ) -> ModelCall:
        covered = covers(self._covered, request.model)
        only = causes[0].request if len(causes) == 1 else None
        if only is not None:  # nearly always, and a third of what the general case takes
            principal, deadline_ns = only.principal, only.deadline_ns
            nobody = principal is None
        else:
            principals = principals_of(causes)
            principal = principals[0] if principals else None
            deadline_ns, nobody = latest_deadline_ns(causes), has_nobody(causes)
            if len(principals) > 1 and not covered:
                self._services.surroundings.permit(principals, request.model)
        if nobody and not covered:
            self._services.surroundings.permit_nobody(request.model)
        call = ModelCall(
            request.model,
            inputs,
            causes[0].context,
            "" if request.version < 0 else str(request.version),
            request.requested_outputs,
            _parameters(request.parameters) if request.parameters else NO_PARAMETERS,
            0,
            request.timeout_us,
            deadline_ns,
            _sequence(request) if request.correlation_id else None,
            request.id,
            principal,
            covered,
        )
        if only is not None:
            call.trace, call.client_id = only.trace, only.client_id
            call.number, call.part = only.number, only.part
        return call

    def _ended(self, call: OpenCall) -> None:
        if self._calls.pop(call.number, None) is not None:
            self.instance.activity.calls -= 1
            self.instance.activity.progress += 1
            self._waiting.end(self, call.number)

    # model control

    def _begin_control(self, request: ControlRequest, region: Array) -> None:
        """Raises ValueError for files that are no bytes."""
        refusal = "" if self._services.allows_control else CONTROL_NOT_ALLOWED
        if not refusal and len(self._controls) >= MOST_OPEN_CONTROLS:
            refusal = (
                f"model '{self._version[0]}' has {MOST_OPEN_CONTROLS} requests to control models "
                "without an answer, the most that one instance may have"
            )
        if refusal:
            self._send(encode(ControlAnswer(request.number, refusal, ready=False)), -1)
            return
        wrong = next((one for one in request.blocks if one.datatype != "UINT8"), None)
        if wrong is not None:
            raise ValueError(f"file '{wrong.name}' of a model is of {wrong.datatype}, not of UINT8")
        files = unpack(request.blocks, 1, region)[0]
        task = self._loop.create_task(self._control(request, files))
        self._controls.add(task)
        task.add_done_callback(self._controls.discard)

    async def _control(self, request: ControlRequest, files: Tensors) -> None:
        self.instance.activity.calls += 1
        try:
            answer = await control(request, files, self._services)
        finally:
            self.instance.activity.calls -= 1
        self._send(encode(answer), -1)


def _parameters(text: str) -> dict[str, object]:
    """Raises InvalidRequest for what cannot travel, or is Triton's own."""
    checked = check_parameters(json.loads(text))
    reserved = checked.keys() & {"sequence_id", "sequence_start", "sequence_end", "timeout"}
    if reserved:
        raise InvalidRequest(
            f"parameter '{min(reserved)}' of a call is given by correlation_id, flags and timeout"
        )
    return checked


def _sequence(request: CallRequest) -> SequenceKey:
    return SequenceKey(request.correlation_id, bool(request.flags & 1), bool(request.flags & 2))
