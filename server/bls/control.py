"""Model control from a model: `pb_utils.load_model` and its siblings, where that is allowed."""

from backends.process.call_messages import IS_READY, LOAD, ControlAnswer, ControlRequest
from backends.seam import Tensors
from server.bls.surroundings import ScriptServices
from server.errors import client_text
from server.overrides import Override

CONTROL_NOT_ALLOWED = (
    "models may not control other models on this server; its administrator allows it with "
    "--allow-model-control-by-models"
)


async def control(
    request: ControlRequest, files: Tensors, services: ScriptServices
) -> ControlAnswer:
    """Do what a model that may control others asks for, as a client's request would be done."""
    try:
        ready = await _control(request, files, services)
    except Exception as error:  # noqa: BLE001 - every error is the script's to see
        return ControlAnswer(request.number, client_text(error) or type(error).__name__, False)
    return ControlAnswer(request.number, "", ready)


async def _control(request: ControlRequest, files: Tensors, services: ScriptServices) -> bool:
    surroundings = services.surroundings
    if request.verb == IS_READY:
        return await surroundings.is_ready(request.model, request.version)
    if request.verb == LOAD:
        contents = {
            path.removeprefix("file:").removeprefix("/"): array.tobytes()
            for path, array in files.items()
        }
        given = Override(request.config, contents) if request.config or contents else None
        await surroundings.load(request.model, given)
    else:
        await surroundings.unload(request.model, request.dependents)
    return True
