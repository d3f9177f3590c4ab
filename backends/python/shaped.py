"""Python models whose requests have other shapes than the model, or inputs that no client sends.

`reshape` of inputs and outputs, and `batch_input`: every request of a batch has its arrays, which
are the same for all of them. Chosen when a model loads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backends.batch_inputs import BatchInputs
from backends.python.api import Tensor
from backends.python.instance import PythonInstance
from backends.python.streams import StreamingPythonInstance
from backends.reshape import input_changes, output_changes, reshape, reshaped
from backends.seam import Batch, BatchResult, Member, ResponseSender, Tensors
from repository.config.tensors import Array
from repository.model import ModelConfig, ModelVersion


def is_shaped(config: ModelConfig) -> bool:
    """Whether the model's inputs or outputs are not as requests and responses have them."""
    changed = any(tensor.HasField("reshape") for tensor in (*config.input, *config.output))
    return bool(changed or config.batch_input)


@dataclass(frozen=True, slots=True)
class ShapedMember:
    """A member as the model means it; a `backends.seam.Member`."""

    inputs: Tensors
    member: Member
    id: str = field(init=False)
    correlation_id: int | str = field(init=False)
    parameters: Mapping[str, Any] = field(init=False)
    requested_outputs: tuple[str, ...] = field(init=False)
    timeout_us: int = field(init=False)

    def __post_init__(self) -> None:
        for name in ("id", "correlation_id", "parameters", "requested_outputs", "timeout_us"):
            object.__setattr__(self, name, getattr(self.member, name))

    def is_cancelled(self) -> bool:
        """Whether its client has gone."""
        found: bool = getattr(self.member, "is_cancelled", lambda: False)()
        return found


class ShapedPythonInstance(PythonInstance):
    """A python model behind `reshape` and `batch_input`."""

    def __init__(
        self, version: ModelVersion, model: Any, name: str, device: str, cores: int
    ) -> None:
        super().__init__(version, model, name, device, cores)
        self._batch_inputs = BatchInputs(version.config)
        self._inner = input_changes(version.config)
        self._outer = output_changes(version.config)
        self._batched = version.config.max_batch_size > 0

    def execute(self, batch: Batch) -> BatchResult:
        return super().execute(self._as_model(batch))

    def _as_model(self, batch: Batch) -> Batch:
        fed = self._batch_inputs.values(batch)
        members = [
            ShapedMember({**reshaped(member.inputs, self._inner, batch.batched), **fed}, member)
            for member in batch.members
        ]
        return Batch(members, batch.rows, batch.batched)

    def _checked(self, tensor: Tensor, rows: int | None) -> Array:
        array = super()._checked(tensor, rows)
        change = self._outer.get(tensor.name())
        if change is None:
            return array
        try:
            return reshape(array, *change, self._batched)
        except ValueError:
            shape = ",".join(map(str, array.shape))
            raise self._fault(
                f"output '{tensor.name()}' with shape [{shape}], which does not fit its reshape "
                f"{list(change[0])} in the config"
            ) from None


class ShapedStreamingInstance(ShapedPythonInstance, StreamingPythonInstance):
    """The same of a decoupled model."""

    def stream(self, batch: Batch, outlets: Sequence[ResponseSender]) -> BatchResult:
        return super().stream(self._as_model(batch), outlets)
