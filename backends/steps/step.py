"""What the built-in steps have in common: their settings, their config, and one request at a time.

A step's requests are independent of each other, and what it makes of them may differ in shape, so
nothing is stacked: a batch is executed member by member, and each has its own result.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from backends.artefact import Artefact, complete_config, inside, refuse
from backends.errors import ExecutionFailed, ModelError
from backends.seam import Batch, BatchResult, Result, Tensors
from repository.config.step_parameters import read_settings
from repository.model import ModelConfig, ModelVersion

MOST_LABEL_BYTES = 1 << 24

_log = logging.getLogger(__name__)


def settings_of(version: ModelVersion, backend: str) -> dict[str, Any]:
    """What the config sets, and the defaults. Raises LoadFailed naming key and value."""
    parameters = version.config.parameters
    written = {key: str(parameters[key].string_value) for key in parameters}
    try:
        return read_settings(backend, written)
    except ValueError as error:
        refuse(version, str(error))


def complete_step(
    version: ModelVersion, backend: str, artefact: Artefact, default_max_batch: int
) -> ModelConfig:
    """The version's config with the step's tensors. Raises LoadFailed."""
    for tensor in (*version.config.input, *version.config.output):
        if tensor.HasField("reshape"):
            refuse(
                version,
                f"'{tensor.name}' has a reshape, which the backend '{backend}' does not offer; "
                "leave it out",
            )
    return complete_config(version, backend, artefact, default_max_batch)


def read_labels(version: ModelVersion, name: str | None) -> tuple[str, ...]:
    """The lines of the label file in the version's folder; of `labels.txt`, where none is named
    and it is there; else none. Raises LoadFailed."""
    path = inside(version, name or "labels.txt", "parameter labels")
    if not path.is_file():
        if name is None:
            return ()
        refuse(version, f"parameter labels: there is no '{name}' in folder {version.path.name}/")
    if path.stat().st_size > MOST_LABEL_BYTES:
        refuse(version, f"{path.name} is larger than {MOST_LABEL_BYTES >> 20} MiB")
    try:
        return tuple(line.strip() for line in path.read_text("utf-8").splitlines())
    except UnicodeDecodeError as error:
        refuse(version, f"{path.name} is not UTF-8: {error}")


class StepInstance(ABC):
    """Answers each request of a batch by itself, on the thread of one core.

    A subclass writes `run`, which takes the inputs of one request, with rows as the first
    dimension.
    """

    def __init__(self, version: ModelVersion, cores: int) -> None:
        self.device = "cpu"
        self.cores = cores
        self.ready = True
        self.changed: Callable[[], None] = lambda: None
        self._where = f"model '{version.name}' version {version.number}"
        self._outputs = tuple(tensor.name for tensor in version.config.output)

    @abstractmethod
    def run(self, inputs: Tensors, wanted: tuple[str, ...]) -> Tensors:
        """The outputs of one request; of those that are not `wanted` it may leave out any.

        Raises ModelError for what the client sent.
        """

    def refused(self, message: str) -> ModelError:
        """The error of a request whose inputs are to blame."""
        return ModelError(f"{self._where}: {message}", "INVALID_ARG")

    def execute(self, batch: Batch) -> BatchResult:
        """Run the members one after the other; a member's error is its own."""
        started = perf_counter_ns()
        results: list[Result] = []
        for member in batch.members:
            wanted = member.requested_outputs or self._outputs
            try:
                self._check_rows(member.inputs)
                found = self.run(member.inputs, wanted)
                results.append({name: found[name] for name in wanted})
            except ExecutionFailed as error:
                results.append(error)
            except Exception as error:  # noqa: BLE001 - our bug, and this member's alone
                _log.exception("%s: a step failed. This is a bug.", self._where)
                failed = f"{self._where}: {type(error).__name__}: {error}. This is a bug."
                results.append(ExecutionFailed(failed))
        return BatchResult(results, 0, perf_counter_ns() - started, 0)

    def _check_rows(self, inputs: Tensors) -> None:
        """Where the model does not batch, nothing before has compared them."""
        rows = {name: len(array) for name, array in inputs.items()}
        if len(set(rows.values())) > 1:
            listed = ", ".join(f"{name} has {count}" for name, count in rows.items())
            raise self.refused(f"its inputs must have as many rows as each other, but {listed}")

    def close(self) -> None:
        self.ready = False
