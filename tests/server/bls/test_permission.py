"""Whose permission a call needs, with a real data plane and a worker's end of the connection."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.process.call_messages import (
    IS_READY,
    CallPart,
    CallRequest,
    ControlAnswer,
    ControlRequest,
    FromServer,
    decode_from_server,
)
from backends.process.health.liveness import Activity
from backends.process.layout import TensorBlock, pack
from backends.process.messages import encode
from backends.process.region import MessageBuffer
from backends.seam import Member
from control.access.scopes import Principal, Role, parse_scopes
from repository.model import ModelConfig, ModelVersion
from repository.process.channel import Channel
from schedulers.request import InferRequest
from server.access.authorizer import Authorizer
from server.bls.connection import MOST_OPEN_CONTROLS
from server.bls.service import ScriptService
from server.bls.surroundings import ScriptServices
from server.dataplane import DataPlane
from server.metrics.custom import CustomMetrics
from server.model_calls import DataPlaneCaller
from server.script_surroundings import GatewaySurroundings
from support.grpc import Shelf, put
from support.server import identity_config

PATIENCE_S = 30.0


class Calling:
    """The instance of a model `script` that executes these requests."""

    name = "script_0_0"
    spec = object()

    def __init__(self, members: Sequence[Member], calls: str) -> None:
        config = ModelConfig(name="script", backend="python")
        if calls:
            config.parameters["calls"].string_value = calls
        self.version = ModelVersion("script", 1, Path(), Path(), config, "digest")
        self.activity = Activity(executing=bool(members))
        self._members = members
        self.killed: list[str] = []

    def causing(self, numbers: Sequence[int]) -> Sequence[Member]:
        return [self._members[one] for one in numbers] if numbers else self._members

    def waits(self) -> None: ...

    def kill(self, verdict: str) -> None:
        self.killed.append(verdict)


def _asked(scope: str = "infer:echo") -> InferRequest:
    principal = Principal(f"token:{scope}", Role.VIEWER, parse_scopes([scope]))
    return InferRequest("script", 1, {}, 1, None, 0, principal=principal)


def _nobody() -> InferRequest:
    """As a warm-up makes one."""
    return InferRequest("script", 1, {}, 1, None, 0, id="warmup")


def _call(
    causes: tuple[int, ...] = (), model: str = "echo", blocks: tuple[TensorBlock, ...] = ()
) -> bytes:
    buffer = MessageBuffer()
    honest = tuple(pack([{"INPUT0": np.zeros((1, 16), np.float32)}], buffer))
    data, _ = buffer.contents()
    terms: tuple[Any, ...] = (1, model, -1, "", 0, 0, 0, "", (), False, causes)
    return encode(CallRequest(*terms, blocks or honest, data))


def _control(number: int = 1, *blocks: TensorBlock) -> bytes:
    return encode(ControlRequest(number, IS_READY, "echo", "", "", False, blocks, bytes(64)))


def _sent(
    members: Sequence[InferRequest],
    payloads: Sequence[bytes],
    calls: str = "",
    required: bool = True,
    allows_control: bool = False,
) -> tuple[FromServer | None, Calling]:
    """The first answer to messages that are there at once; None where the worker is killed."""

    async def main() -> tuple[FromServer | None, Calling]:
        served = put(identity_config("echo"))
        dataplane = DataPlane(Shelf([served]), "m", "0", authorizer=Authorizer(required))
        get: Callable[[], DataPlane] = lambda: dataplane  # noqa: E731
        around = ScriptServices(
            DataPlaneCaller(get), GatewaySurroundings(get), CustomMetrics(), allows_control
        )
        instance = Calling(members, calls)
        ours, theirs = socket.socketpair()
        channel = Channel(theirs)
        for payload in payloads:
            channel.send(payload)
        connection = ScriptService(around).connect(instance, ours)
        try:
            received = await asyncio.to_thread(channel.receive, PATIENCE_S)
            return decode_from_server(received.payload), instance
        except EOFError:
            return None, instance
        finally:
            connection.close()
            await asyncio.sleep(0)
            channel.close()
            await served.scheduler.close()

    return asyncio.run(main())


def _answered(
    members: Sequence[InferRequest], payload: bytes, calls: str = "", required: bool = True
) -> tuple[CallPart | None, Calling]:
    """What a worker is answered; None where it is killed instead."""
    part, instance = _sent(members, [payload], calls, required)
    assert part is None or isinstance(part, CallPart)
    return part, instance


def _text(part: CallPart | None) -> str:
    assert part is not None
    return "" if part.error is None else part.error.text


def test_call_is_made_with_the_permission_of_the_request_behind_it() -> None:
    part, instance = _answered([_asked()], _call())
    assert _text(part) == ""
    assert instance.activity.calls == 0


def test_call_that_the_request_behind_it_may_not_make_is_refused() -> None:
    part, _ = _answered([_asked("infer:other")], _call())
    assert "infer:echo" in _text(part)


def test_listed_callee_needs_no_permission_of_its_own() -> None:
    part, _ = _answered([_asked("infer:other")], _call(), calls="x, echo")
    assert _text(part) == ""


def test_call_for_several_requests_must_be_allowed_to_each() -> None:
    several = [_asked(), _asked("infer:other")]
    part, _ = _answered(several, _call())
    assert "infer:echo" in _text(part)
    part, _ = _answered([_asked(), _asked("infer:*")], _call())
    assert _text(part) == ""


def test_request_that_a_call_names_is_the_only_one_that_counts() -> None:
    several = [_asked(), _asked("infer:other")]
    assert _text(_answered(several, _call((0,)))[0]) == ""
    assert "infer:echo" in _text(_answered(several, _call((1,)))[0])


@pytest.mark.parametrize(
    ("required", "calls", "allowed"),
    [
        (True, "", False),
        (True, "echo", True),
        (False, "", True),
    ],
)
def test_call_without_a_request_behind_it(required: bool, calls: str, allowed: bool) -> None:
    part, _ = _answered([], _call(), calls, required)
    assert ("no request is behind this call" in _text(part)) == (not allowed)


@pytest.mark.parametrize(
    ("required", "calls", "allowed"),
    [(True, "", False), (True, "echo", True), (False, "", True)],
)
@pytest.mark.parametrize("beside", [False, True])
def test_call_in_a_warm_up_has_nobodys_permission(
    required: bool, calls: str, allowed: bool, beside: bool
) -> None:
    members = [_nobody(), _asked()] if beside else [_nobody()]
    part, _ = _answered(members, _call(), calls, required)
    assert ("no request is behind this call" in _text(part)) == (not allowed)


@pytest.mark.parametrize("shapes", [((-1, 1 << 24),), ((1 << 24,), (-1, 1 << 24))])
def test_worker_that_counts_strings_below_zero_is_killed(
    shapes: tuple[tuple[int, ...], ...],
) -> None:
    blocks = tuple(TensorBlock(f"X{i}", "BYTES", 0, (one,)) for i, one in enumerate(shapes))
    part, instance = _answered([_asked()], _call(blocks=blocks))
    assert part is None
    assert "negative" in instance.killed[0] or "behind its region" in instance.killed[0]


def test_control_that_is_not_allowed_is_refused_before_its_files_are_read() -> None:
    answer, instance = _sent([], [_control(1, TensorBlock("file:x", "BYTES", 0, ((1 << 40,),)))])
    assert isinstance(answer, ControlAnswer)
    assert "--allow-model-control-by-models" in answer.error
    assert not instance.killed


def test_worker_whose_file_is_no_bytes_is_killed() -> None:
    block = TensorBlock("file:x", "BYTES", 0, ((1,),))
    answer, instance = _sent([], [_control(1, block)], allows_control=True)
    assert answer is None
    assert "file 'file:x' of a model is of BYTES" in instance.killed[0]


def test_control_beyond_the_most_open_requests_is_refused() -> None:
    requests = [_control(number) for number in range(MOST_OPEN_CONTROLS + 1)]
    answer, instance = _sent([], requests, allows_control=True)
    assert isinstance(answer, ControlAnswer)
    assert answer.number == MOST_OPEN_CONTROLS
    assert f"has {MOST_OPEN_CONTROLS} requests to control models" in answer.error
    assert not instance.killed


def test_worker_that_sends_no_message_is_killed_with_the_reason() -> None:
    part, instance = _answered([_asked()], b"\xc1 nonsense")
    assert part is None
    assert "sent an invalid message" in instance.killed[0]
