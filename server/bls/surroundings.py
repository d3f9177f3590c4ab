"""What scripts need of the server around them; `server.script_surroundings` has it."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from backends.seam import Instance
from control.access.scopes import Principal
from schedulers.calls import ModelCaller
from schedulers.policy.resource_limits import InstanceLimit, ResourceLimiter
from schedulers.request import CallContext
from server.metrics.custom import CustomMetrics
from server.overrides import Override
from server.served_version import ServedVersion


class ScriptSurroundings(Protocol):
    """The rest of the gateway, as scripts see it. On the loop's thread."""

    def permit(self, principals: Iterable[Principal], model: str) -> None:
        """Raises Forbidden unless each of them may infer with the model."""

    def permit_nobody(self, model: str) -> None:
        """Raises Forbidden where whoever shows no token may not infer with the model."""

    def answering(self, model: str, version: str, context: CallContext) -> ServedVersion:
        """The version that a call of this context leads to. Raises UnknownModel, NotReady."""

    @property
    def limiter(self) -> ResourceLimiter | None:
        """The rate limiter; None where executions are not limited."""

    def instances(self, model: str, version: int) -> Sequence[Instance]:
        """Of a version; none where it does not serve."""

    def limits(self, model: str, version: int) -> Sequence[InstanceLimit]:
        """Of each instance that the config of a version asks for, whether or not it is loaded; none
        where its executions take nothing, and where it does not serve."""

    async def load(self, model: str, override: Override | None) -> None:
        """Load by request. Raises what a client would be told."""

    async def unload(self, model: str, dependents: bool) -> None:
        """Unload by request. Raises what a client would be told."""

    async def is_ready(self, model: str, version: str) -> bool:
        """Whether a version takes requests. Raises InvalidRequest."""


class ScriptServices(NamedTuple):
    """What every connection shares. `allows_control`: whether models may load and unload."""

    caller: ModelCaller
    surroundings: ScriptSurroundings
    metrics: CustomMetrics
    allows_control: bool
