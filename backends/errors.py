"""What can go wrong in a runtime.

BackendError
├── LoadFailed        the artefact cannot be loaded: the reason, in the runtime's own words
├── ExecutionFailed   the runtime refused this batch; the instance is fine
│   └── ModelError    the model itself answered one request with an error, and chose its code
├── FaultyModel       the model broke the contract of its config (e.g. wrong leading dimension)
├── SequenceLost      the instance does not know this sequence (any more): its state is gone
├── Reschedule        the model asks for a request to be executed once more; no answer yet
└── InstanceDied      the process behind the instance is gone; every request of the batch is lost
"""


class BackendError(Exception):
    """Base of everything `backends` raises; the message names the model and the version."""


class LoadFailed(BackendError):
    """The artefact cannot be loaded."""


class ExecutionFailed(BackendError):
    """The runtime refused a batch; the instance can take the next one."""


class ModelError(ExecutionFailed):
    """A model's own error for one request; `code` is Triton's name for it ("INVALID_ARG")."""

    def __init__(self, message: str, code: str = "INTERNAL") -> None:
        super().__init__(message)
        self.code = code


class FaultyModel(BackendError):
    """The model did something its config rules out; nobody receives another request's rows."""


class InstanceDied(BackendError):
    """The instance's process is gone; it is restarted by its host."""


class SequenceLost(BackendError):
    """What an instance kept of a sequence is gone; it must be started again by its client."""


class Reschedule(BackendError):
    """The model asks for one request to be executed once more, and has not answered it yet.

    It stands where a request's result would: in `BatchResult.results`, or in the last
    `ResponsePart` of one execution of a decoupled model. A scheduler of iterative sequences
    executes the request again; to any other it is the request's error, which says so.
    """

    def __init__(
        self,
        message: str = "the model asks for this request to be executed again, which needs "
        "sequence_batching { iterative_sequence: true } in its config",
    ) -> None:
        super().__init__(message)
