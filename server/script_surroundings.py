"""The gateway around scripts: who answers a call, who may call, and what models may be told to do.

Implements `server.bls.surroundings.ScriptSurroundings`; `loader_of` gives it to the models.
"""

from collections.abc import Callable, Iterable, Sequence

from backends.seam import Instance
from control.access.scopes import Action, Principal
from schedulers.policy.cores import CoreTokens
from schedulers.policy.resource_limits import InstanceLimit, ResourceLimiter
from schedulers.request import CallContext
from server.access.token_holder import PrincipalPermission
from server.bls.service import ScriptService
from server.bls.surroundings import ScriptServices
from server.dataplane import DataPlane
from server.errors import Forbidden, NotReady, UnknownModel
from server.fleet.checks.check import Checker
from server.fleet.confine import Confiner
from server.fleet.loading import VersionLoader
from server.fleet.rate_limits import limits_of, takes_resources
from server.metrics.custom import CustomMetrics
from server.model_calls import DataPlaneCaller
from server.model_queries import ModelQueries
from server.overrides import Override
from server.routing.table import Target
from server.served_version import ServedVersion
from server.settings.table import Settings


class GatewaySurroundings:
    """Over one data plane; on the loop's thread."""

    def __init__(self, dataplane: Callable[[], DataPlane]) -> None:
        """`dataplane`: the one there will be; it is built of models that hold this."""
        self._dataplane = dataplane

    def permit(self, principals: Iterable[Principal], model: str) -> None:
        dataplane = self._dataplane()
        for principal in principals:
            dataplane.authorise(PrincipalPermission(principal), Action.INFER, model)

    def permit_nobody(self, model: str) -> None:
        if self._dataplane().authorizer.required:
            raise Forbidden(
                f"no request is behind this call to '{model}', so that nobody's permission can be "
                "held against it; make it while a request is executed, or list the model in the "
                "parameter 'calls' of the calling model's config"
            )

    def answering(self, model: str, version: str, context: CallContext) -> ServedVersion:
        dataplane = self._dataplane()
        target = None if version else context.root.arms.get(model)
        if isinstance(target, Target):
            return dataplane.find_target(target)
        return dataplane.find_model(model, version)

    @property
    def limiter(self) -> ResourceLimiter | None:
        return self._dataplane().models.limiter

    def instances(self, model: str, version: int) -> Sequence[Instance]:
        try:
            return self._dataplane().models.get(model, version).instances
        except (UnknownModel, NotReady):
            return ()

    def limits(self, model: str, version: int) -> Sequence[InstanceLimit]:
        try:
            config = self._dataplane().models.get(model, version).version.config
        except (UnknownModel, NotReady):
            return ()
        return [limit for _, limit in limits_of(config)] if takes_resources(config) else ()

    async def load(self, model: str, override: Override | None) -> None:
        await self._dataplane().models.load(model, override)

    async def unload(self, model: str, dependents: bool) -> None:
        await self._dataplane().models.unload(model, dependents)

    async def is_ready(self, model: str, version: str) -> bool:
        return await ModelQueries(self._dataplane()).model_ready(model, version)


def loader_of(
    settings: Settings,
    checker: Checker,
    confiner: Confiner,
    custom: CustomMetrics,
    dataplane: Callable[[], DataPlane],
) -> VersionLoader:
    """What loads models that may call others; call it on the running loop."""
    caller, surroundings = DataPlaneCaller(dataplane), GatewaySurroundings(dataplane)
    allows_control = settings.allow_model_control_by_models
    scripts = ScriptService(ScriptServices(caller, surroundings, custom, allows_control))
    return VersionLoader(checker, CoreTokens(settings.cores), settings, confiner, caller, scripts)
