"""The child: loads one instance of one version and executes the batches it is sent.

Started by `backends.process.worker_process` as `main(channel fd, heartbeat fd, parent's pid)`. A
batch comes in by message and shared memory; its results go back the same way.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from backends.errors import ExecutionFailed, FaultyModel, LoadFailed, ModelError
from backends.process.batch_regions import BatchReader, BatchWriter
from backends.process.begin import begin
from backends.process.call_client import connect_calls
from backends.process.call_link import CAUSE_BITS
from backends.process.health.heartbeat import answer_readiness
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
from backends.process.streaming import StreamChannel
from backends.ragged import RaggedInstance
from backends.registry import backend_of
from backends.seam import (
    Batch,
    BatchResult,
    Device,
    Instance,
    Result,
    StreamingInstance,
    Tensors,
    requested_outputs,
)
from backends.sequences.loading import load as load_instances
from backends.stacked import StackedInstance
from repository.config.tensors import Array
from repository.model import ModelConfig, ModelVersion
from repository.process.channel import Channel

_TEXT_LIMIT = 32 * 1024


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


class _WorkerMember(Struct, eq=False):
    """One request as this side of the wall knows it; a `backends.seam.Member`. `region`: where the
    byte at `index` becomes 1 when its client has gone."""

    id: str
    correlation_id: int | str
    parameters: Mapping[str, Any]
    requested_outputs: tuple[str, ...]
    timeout_us: int
    inputs: Tensors
    region: Array
    index: int
    cause: int

    def is_cancelled(self) -> bool:
        return bool(self.region[self.index])


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
        self._inbox = BatchReader()
        self._outbox = BatchWriter()
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
        try:
            answer: BatchExecuted | BatchFailed = self._execute(message)
        except (ExecutionFailed, FaultyModel) as error:
            if self._line is not None:
                self._line.forget(message.streams)
            answer = BatchFailed(_trouble(error), held=False)
        return replace(answer, held=True) if self._inbox.is_held else answer

    def _execute(self, message: Execute) -> BatchExecuted:
        started = perf_counter_ns()
        self._executions += 1
        outcome = self._run(message)
        ended = perf_counter_ns()
        errors: dict[int, WorkerError] = {}
        tensors: list[Tensors] = []
        for index, result in enumerate(outcome.results):
            if isinstance(result, Exception):
                errors[index] = _trouble(result)
                tensors.append({})
            else:
                tensors.append(result)
        blocks = self._outbox.pack(tensors)
        inside_ns = outcome.input_ns + outcome.infer_ns + outcome.output_ns
        output_ns = outcome.output_ns + perf_counter_ns() - ended
        input_ns = ended - started - inside_ns + outcome.input_ns
        parameters: dict[int, str] = {}
        for index, of_member in outcome.parameters.items():
            parameters[index] = json.dumps(dict(of_member))
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

    def _run(self, message: Execute) -> BatchResult:
        region, count = self._inbox.region, len(message.members)
        layout = self._inbox.layout(message.blocks, count)
        if self._stacks and message.batched and count > 1:
            stacked = layout.stacked(region)
            if stacked is not None:
                try:
                    return self._run_stacked(message, stacked)
                except ExecutionFailed:
                    del stacked  # refused together: the instance tries them one by one
        first = self._executions << CAUSE_BITS
        members = []
        for index, inputs in enumerate(layout.tensors(region)):
            cause = message.streams[index] if message.streams else first + index
            members.append(_member(message.members[index], inputs, region, index, cause))
        batch = Batch(members, message.rows, message.batched, message.sequences)
        if self._line is None:
            return self._instance.execute(batch)
        streaming = cast(StreamingInstance, self._instance)
        return streaming.stream(batch, self._line.open(message.streams))

    def _run_stacked(self, message: Execute, inputs: Tensors) -> BatchResult:
        """The whole batch as one member, whose arrays are the region's own: nothing is copied."""
        output_names = requested_outputs(facts.requested_outputs for facts in message.members)
        facts = RequestMetadata("", 0, "", output_names, 0)
        whole = _member(facts, inputs, self._inbox.region, 0, -1)
        outcome = self._instance.execute(Batch((whole,), (sum(message.rows),), True))
        outputs = outcome.results[0]
        if isinstance(outputs, Exception):
            raise outputs
        return outcome._replace(results=_split(outputs, message.members, message.rows))


def _split(
    outputs: Tensors, members: Sequence[RequestMetadata], rows: Sequence[int]
) -> list[Result]:
    results: list[Result] = []
    start = 0
    for member, count in zip(members, rows, strict=True):
        names = member.requested_outputs or outputs
        results.append({name: outputs[name][start : start + count] for name in names})
        start += count
    return results


def _member(
    facts: RequestMetadata, inputs: Tensors, region: Array, index: int, cause: int
) -> _WorkerMember:
    return _WorkerMember(
        facts.id,
        facts.correlation_id,
        json.loads(facts.parameters) if facts.parameters else {},
        facts.requested_outputs,
        facts.timeout_us,
        inputs,
        region,
        index,
        cause,
    )


def _trouble(error: Exception) -> WorkerError:
    code = error.code if isinstance(error, ModelError) else ""
    return WorkerError(type(error).__name__, str(error)[:_TEXT_LIMIT], code)
