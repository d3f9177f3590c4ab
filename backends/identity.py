"""Identity: output k is input k, untouched; with a delay it stands in for a slow model, and
decoupled for one that answers a request several times, or never.

Its parameters are those of Triton's identity backend, so that Triton's own tests can use it.
"""

import time
from collections.abc import Callable, Sequence

from tritonclient.grpc import model_config_pb2 as pb

from backends.artefact import refuse
from backends.errors import ExecutionFailed
from backends.fixed_inputs import has_fixed_inputs
from backends.reshape import input_changes, output_changes, reshaped
from backends.seam import (
    Batch,
    BatchResult,
    Device,
    LoadedInstances,
    ResponsePart,
    ResponseSender,
    Result,
    Tensors,
)
from repository.model import ModelConfig, ModelVersion

MOST = 86_400_000
"""Of each parameter: milliseconds of a day, responses of a request."""


class IdentityBackend:
    """The backend `identity`; it has no file of its own."""

    def complete(self, version: ModelVersion, default_max_batch: int) -> ModelConfig:
        """Each output mirrors the input of its place; INPUT0 → OUTPUT0, FP32 [-1], if unset."""
        config = ModelConfig()
        config.CopyFrom(version.config)
        config.backend = "identity"
        config.ClearField("platform")
        if not config.input:
            config.input.add(name="INPUT0", data_type=pb.TYPE_FP32, dims=[-1])
        if not config.output:
            for place, source in enumerate(config.input):
                target = config.output.add(
                    name=f"OUTPUT{place}", data_type=source.data_type, dims=source.dims
                )
                if source.HasField("reshape"):
                    target.reshape.CopyFrom(source.reshape)
        _check_pairs(version, config)
        return config

    def load(self, version: ModelVersion, device: Device, count: int) -> LoadedInstances:
        """`count` instances. `execute_delay_ms` sleeps before each answer, times the instance's
        number when `instance_wise_delay_multiplier` is set, as Triton counts it. Decoupled, it
        answers each request `responses` times (1 if unset), each time after that delay."""
        delay_ms = _whole(version, "execute_delay_ms")
        multiplier = _whole(version, "instance_wise_delay_multiplier")
        name = "cpu" if device.kind == "cpu" else f"{device.kind}:{device.index}"
        delays = [delay_ms * max(multiplier * number, 1) / 1000 for number in range(count)]
        changed = any(
            tensor.HasField("reshape") for tensor in (*version.config.input, *version.config.output)
        )
        kind = ReshapingIdentity if changed else IdentityInstance
        return LoadedInstances([kind(version, name, delay) for delay in delays], version.config)


def _check_pairs(version: ModelVersion, config: ModelConfig) -> None:
    if len(config.output) > len(config.input):
        refuse(
            version,
            f"identity gives back its inputs: {len(config.output)} outputs need as many inputs, "
            f"but there are {len(config.input)}",
        )
    for source, target in zip(config.input, config.output, strict=False):
        if source.data_type != target.data_type:
            refuse(
                version,
                f"output '{target.name}' is {pb.DataType.Name(target.data_type)}, but identity "
                f"gives back '{source.name}', which is {pb.DataType.Name(source.data_type)}",
            )


def _whole(version: ModelVersion, name: str) -> int:
    parameters = version.config.parameters
    text = parameters[name].string_value if name in parameters else "0"
    if not text.isdecimal() or len(text) > 18 or int(text) > MOST:
        allowed = f"a whole number from 0 to {MOST}"
        refuse(version, f"parameter {name} is '{text:.80}'; it must be {allowed}")
    return int(text)


def _responses(version: ModelVersion) -> int:
    if "responses" not in version.config.parameters:
        return 1
    if not version.config.model_transaction_policy.decoupled:
        refuse(version, "parameter responses needs model_transaction_policy { decoupled: true }")
    return _whole(version, "responses")


class IdentityInstance:
    """Hands each member's own arrays back: nothing is stacked, so nothing is split."""

    def __init__(self, version: ModelVersion, device: str, delay_s: float) -> None:
        self.device = device
        self.cores = 0 if delay_s else 1
        self.ready = True
        self.changed: Callable[[], None] = lambda: None
        config = version.config
        self.loop_safe = not delay_s and has_fixed_inputs(config)
        self._delay_s = delay_s
        self.streams = config.model_transaction_policy.decoupled
        self._responses = _responses(version)
        self._pairs = tuple(
            (target.name, source.name)
            for source, target in zip(config.input, config.output, strict=False)
        )
        required = not any(tensor.optional for tensor in config.input)
        self._single = self._pairs[0] if required and len(self._pairs) == 1 else None

    def execute(self, batch: Batch) -> BatchResult:
        """Answer every member with its own inputs; an output whose optional input is absent is
        absent too."""
        started = time.perf_counter_ns()
        if self._delay_s:
            time.sleep(self._delay_s)
        results: list[Result]
        if self._single is not None:
            target, source = self._single
            results = [{target: member.inputs[source]} for member in batch.members]
        else:
            results = [
                self._answer(member.inputs, member.requested_outputs) for member in batch.members
            ]
        return BatchResult(results, 0, time.perf_counter_ns() - started, 0)

    def stream(self, batch: Batch, outlets: Sequence[ResponseSender]) -> BatchResult:
        """Answer every member `responses` times, one after the other; the last says so."""
        started = time.perf_counter_ns()
        for member, outlet in zip(batch.members, outlets, strict=True):
            outputs = self._answer(member.inputs, member.requested_outputs)
            for left in reversed(range(self._responses)):
                if outlet.cancelled:
                    break
                if self._delay_s:
                    time.sleep(self._delay_s)
                outlet.send(ResponsePart(outputs, last=not left))
            outlet.pass_on(ResponsePart(None, last=True))  # of no effect after a last response
        return BatchResult((), 0, time.perf_counter_ns() - started, 0)

    def _answer(self, inputs: Tensors, outputs: tuple[str, ...]) -> Tensors:
        return {
            target: inputs[source]
            for target, source in self._pairs
            if source in inputs and (not outputs or target in outputs)
        }

    def close(self) -> None:
        self.ready = False


class ReshapingIdentity(IdentityInstance):
    """Gives inputs back in the shape that `reshape` means for the model, and then for responses."""

    def __init__(self, version: ModelVersion, device: str, delay_s: float) -> None:
        super().__init__(version, device, delay_s)
        self._single = None
        self._inner, self._outer = input_changes(version.config), output_changes(version.config)
        self._batched = version.config.max_batch_size > 0

    def _answer(self, inputs: Tensors, outputs: tuple[str, ...]) -> Tensors:
        found = super()._answer(reshaped(inputs, self._inner, self._batched), outputs)
        try:
            return reshaped(found, self._outer, self._batched)
        except ValueError as error:
            raise ExecutionFailed(f"the reshape of an output does not fit: {error}") from None
