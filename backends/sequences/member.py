"""A request of a sequence as its runtime sees it: with controls and states among its inputs."""

from collections.abc import Callable, Mapping
from typing import Any

from backends.seam import NO_PARAMETERS, Member, Tensors


class SequenceMember:
    """A `backends.seam.Member`; `flags` are those that a python model asks for."""

    __slots__ = (
        "cause",
        "correlation_id",
        "flags",
        "id",
        "inputs",
        "is_cancelled",
        "parameters",
        "requested_outputs",
        "timeout_us",
    )

    def __init__(
        self,
        inputs: Tensors,
        requested_outputs: tuple[str, ...],
        of: Member | None = None,
        flags: int = 0,
    ) -> None:
        """`of`: the request it stands for; None for rows that are nobody's, or everybody's."""
        self.inputs = inputs
        self.requested_outputs = requested_outputs
        self.flags = flags
        self.id: str = "" if of is None else of.id
        self.correlation_id: int | str = 0 if of is None else of.correlation_id
        self.parameters: Mapping[str, Any] = NO_PARAMETERS if of is None else of.parameters
        self.timeout_us: int = 0 if of is None else of.timeout_us
        self.cause: int = getattr(of, "cause", -1)
        self.is_cancelled: Callable[[], bool] | None = getattr(of, "is_cancelled", None)
