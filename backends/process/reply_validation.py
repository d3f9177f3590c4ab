"""What a worker says beside tensors, looked at before it is believed; foreign code runs in it.

Everything here raises one of `NONSENSE` for what no worker of ours says.
"""

import json
from typing import Any

from google.protobuf.message import DecodeError

from backends import errors
from backends.errors import ExecutionFailed, LoadFailed
from backends.process.messages import Message, WorkerError, WorkerLoaded, WorkerLoadFailed
from repository.model import ModelConfig, ModelVersion
from repository.sandbox.policy import asks_for_network

NONSENSE = (
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    AttributeError,
    OverflowError,
    RecursionError,
    MemoryError,
    DecodeError,
)
"""What reading a worker's words may raise when it is no worker of ours."""

_MOST_PARAMETER_CHARACTERS = 1 << 20
_MOST_CHARACTERS = 32 * 1024
"""Of an error's text."""
_MOST_CORES = 1 << 16
_RAISED = {
    kind.__name__: kind
    for kind in (
        errors.ExecutionFailed,
        errors.FaultyModel,
        errors.LoadFailed,
        errors.Reschedule,
        errors.SequenceLost,
    )
}


def loaded_as_promised(loaded: Message, version: ModelVersion) -> WorkerLoaded:
    """The answer to a load, whose config is that of `version`: completed, and not of another model,
    backend or sandbox. Raises LoadFailed with what the worker says."""
    if isinstance(loaded, WorkerLoadFailed):
        raise LoadFailed(loaded.text[:_MOST_CHARACTERS])
    if not isinstance(loaded, WorkerLoaded):
        raise TypeError(f"it answered a load with {type(loaded).__name__}")
    if not 0 <= loaded.cores <= _MOST_CORES:
        raise ValueError(f"it takes {loaded.cores} cores")
    completed, sent = ModelConfig.FromString(loaded.config), version.config
    for field in ("name", "backend"):
        if getattr(completed, field) != getattr(sent, field):
            raise ValueError(f"it changed the {field} of its config")
    if asks_for_network(completed.parameters) != asks_for_network(sent.parameters):
        raise ValueError("it changed the parameter 'network' of its config")
    return loaded


def parameters(text: str) -> Any:
    """Those of one response; empty text for none."""
    if len(text) > _MOST_PARAMETER_CHARACTERS:
        most = _MOST_PARAMETER_CHARACTERS
        raise ValueError(f"a response's parameters have {len(text)} characters of at most {most}")
    return json.loads(text) if text else {}


def raised(trouble: WorkerError) -> Exception:
    """The error a worker speaks of, as it was raised there."""
    text = trouble.text[:_MOST_CHARACTERS]
    if trouble.kind == errors.ModelError.__name__:
        return errors.ModelError(text, trouble.code)
    return _RAISED.get(trouble.kind, ExecutionFailed)(text)
