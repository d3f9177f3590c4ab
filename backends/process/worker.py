"""The child: loads one instance of one version and executes the batches it is sent.

Started by `backends.process.worker_process` as `main(channel fd, heartbeat fd, parent's pid)`. A
batch comes in by message and shared memory; its results go back the same way.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns
from typing import Any, cast

from msgspec.structs import replace

from backends.errors import ExecutionFailed, FaultyModel, LoadFailed, ModelError
from backends.process.begin import begin
from backends.process.call_client import connect_calls
from backends.process.call_link import CAUSE_BITS
from backends.process.health.heartbeat import answer_readiness
from backends.process.layout import merged, pack, unpack
from backends.process.messages import (
    BatchExecuted,
    BatchFailed,
    Execute,
    Finalize,
    Load,
    Message,
    RequestMetadata,
    WorkerError,
    WorkerLoaded,
    WorkerLoadFailed,
    decode,
    encode,
)
from backends.process.region import RegionReader, RegionWriter
from backends.process.streaming import StreamChannel
from backends.ragged import RaggedInstance
from backends.registry import backend_of
from backends.seam import Batch, BatchResult, Device, Instance, Result, StreamingInstance, Tensors
from backends.sequences.loading import load as load_instances
from backends.stacked import StackedInstance
from repository.config.tensors import Array
from repository.model import ModelConfig, ModelVersion
from repository.process.channel import Channel

_TEXT_LIMIT = 32 * 1024
# The region's view and getrefcount's own argument.
_UNHELD_REFERENCES = 2


def main(channel_fd: int, heartbeat_fd: int, parent_pid: int) -> None:
    """Serve until the server says `Finalize` or is gone."""
    channel = begin(channel_fd, heartbeat_fd, parent_pid)
    try:
        instance = _load(channel)
        if instance is not None:
            _serve(channel, instance)
    except (EOFError, BrokenPipeError, ConnectionError):
        os._exit(1)


def _serve(channel: Channel, instance: Instance) -> None:
    if not getattr(instance, "streams", False):
        _WorkerLoop(channel, instance, None).until_finalized()
        instance.close()
        return
    name = os.environ.get("MODELYARD_INSTANCE", "worker")
    line = StreamChannel(channel, name, _trouble)
    _WorkerLoop(line, instance, line).until_finalized()
    instance.close()
    line.flush()


def _load(channel: Channel) -> Instance | None:
    payload, calls = channel.receive()
    request = decode(payload)
    assert isinstance(request, Load)
    if calls >= 0:
        connect_calls(calls)
    try:
        loaded = load_instances(
            backend_of(ModelConfig.FromString(request.config).backend),
            ModelVersion(
                name=request.name,
                number=request.number,
                folder=Path(request.folder),
                path=Path(request.path),
                config=ModelConfig.FromString(request.config),
                digest=request.digest,
            ),
            Device(request.kind, request.device_index, request.threads),
            1,
        )
    except LoadFailed as error:
        channel.send(encode(WorkerLoadFailed(str(error)[:_TEXT_LIMIT])))
        return None
    instance = loaded.instances[0]
    config = loaded.config.SerializeToString(deterministic=True)
    streams = bool(getattr(instance, "streams", False))
    check = getattr(instance, "check_ready", None)
    if check is not None:
        answer_readiness(check)
    checks = check is not None
    channel.send(encode(WorkerLoaded(config, instance.device, instance.cores, streams, checks)))
    return instance


@dataclass(slots=True)
class _WorkerMember:
    """One request as this side of the wall knows it; a `backends.seam.Member`. `flag`: a byte
    that becomes 1 when its client has gone."""

    id: str
    correlation_id: int | str
    parameters: Mapping[str, Any]
    requested_outputs: tuple[str, ...]
    timeout_us: int
    inputs: Tensors = field(default_factory=dict)
    flag: Array | None = None
    cause: int = -1

    def is_cancelled(self) -> bool:
        return self.flag is not None and bool(self.flag[0])


class _WorkerLoop:
    """The loop of a loaded worker; `line` is where streams go, if its model is decoupled."""

    def __init__(
        self, channel: Channel | StreamChannel, instance: Instance, line: StreamChannel | None
    ) -> None:
        self._channel = channel
        self._line = line
        self._instance = instance
        ragged = isinstance(instance, RaggedInstance)
        self._stacks = isinstance(instance, StackedInstance) and not ragged
        self._inbox = RegionReader()
        self._outbox = RegionWriter()
        self._executions = 0

    def until_finalized(self) -> None:
        while True:
            payload, fd = self._channel.receive()
            if fd >= 0:
                self._inbox.accept(fd)
            message = decode(payload)
            if isinstance(message, Finalize):
                return
            assert isinstance(message, Execute)
            self._answer(self._serve(message))

    def _answer(self, message: Message) -> None:
        fd = self._outbox.take_fd()
        try:
            self._channel.send(encode(message), fd)
        finally:
            if fd >= 0:
                os.close(fd)

    def _serve(self, message: Execute) -> Message:
        """Execute; afterwards nothing of ours refers to the server's region any more, so that
        whatever still does is the model's."""
        region = self._inbox.view()
        try:
            answer: BatchExecuted | BatchFailed = self._execute(message, region)
        except (ExecutionFailed, FaultyModel) as error:
            if self._line is not None:
                self._line.forget(message.streams)
            answer = BatchFailed(_trouble(error), held=False)
        return replace(answer, held=sys.getrefcount(region) > _UNHELD_REFERENCES)

    def _execute(self, message: Execute, region: Array) -> BatchExecuted:
        started = perf_counter_ns()
        self._executions += 1
        members = [_member(facts) for facts in message.members]
        outcome = self._run(message, members, region)
        ended = perf_counter_ns()
        errors: dict[int, WorkerError] = {}
        tensors: list[Tensors] = []
        for index, result in enumerate(outcome.results):
            if isinstance(result, Exception):
                errors[index] = _trouble(result)
                tensors.append({})
            else:
                tensors.append(result)
        blocks = tuple(pack(tensors, self._outbox))
        inside_ns = outcome.input_ns + outcome.infer_ns + outcome.output_ns
        output_ns = outcome.output_ns + perf_counter_ns() - ended
        input_ns = ended - started - inside_ns + outcome.input_ns
        parameters = {
            index: json.dumps(dict(of_member)) for index, of_member in outcome.parameters.items()
        }
        return BatchExecuted(
            errors,
            blocks,
            input_ns,
            outcome.infer_ns,
            output_ns,
            parameters,
            held=False,
            state_bytes=getattr(self._instance, "state_bytes", 0),
        )

    def _run(self, message: Execute, members: list[_WorkerMember], region: Array) -> BatchResult:
        blocks = message.blocks
        if self._stacks and message.batched and len(members) > 1:
            stacked = merged(blocks)
            if stacked is not None:
                try:
                    return self._run_stacked(message, members, unpack(stacked, 1, region)[0])
                except ExecutionFailed:
                    del stacked  # refused together: the instance tries them one by one
        first = self._executions << CAUSE_BITS
        for index, inputs in enumerate(unpack(blocks, len(members), region)):
            members[index].inputs = inputs
            members[index].flag = region[index : index + 1]
            members[index].cause = message.streams[index] if message.streams else first + index
        batch = Batch(members, message.rows, message.batched, message.sequences)
        if self._line is None:
            return self._instance.execute(batch)
        streaming = cast(StreamingInstance, self._instance)
        return streaming.stream(batch, self._line.open(message.streams))

    def _run_stacked(
        self, message: Execute, members: list[_WorkerMember], inputs: Tensors
    ) -> BatchResult:
        """The whole batch as one member, whose arrays are the region's own: nothing is copied."""
        output_names = Batch(members, message.rows, True).requested_outputs()
        whole = _WorkerMember("", 0, {}, output_names, 0, inputs)
        outcome = self._instance.execute(Batch((whole,), (sum(message.rows),), True))
        outputs = outcome.results[0]
        if isinstance(outputs, Exception):
            raise outputs
        return outcome._replace(results=_split(outputs, members, message.rows))


def _split(outputs: Tensors, members: Sequence[_WorkerMember], rows: Sequence[int]) -> list[Result]:
    results: list[Result] = []
    start = 0
    for member, count in zip(members, rows, strict=True):
        names = member.requested_outputs or outputs
        results.append({name: outputs[name][start : start + count] for name in names})
        start += count
    return results


def _member(facts: RequestMetadata) -> _WorkerMember:
    parameters = json.loads(facts.parameters) if facts.parameters else {}
    return _WorkerMember(
        facts.id, facts.correlation_id, parameters, facts.requested_outputs, facts.timeout_us
    )


def _trouble(error: Exception) -> WorkerError:
    code = error.code if isinstance(error, ModelError) else ""
    return WorkerError(type(error).__name__, str(error)[:_TEXT_LIMIT], code)
