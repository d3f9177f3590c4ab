"""A request made anew for another version: what a mirror sends. Pure."""

from repository.config.tensors import BY_DTYPE
from schedulers.request import InferRequest
from server.admit import admit, check_input
from server.errors import Unsupported
from server.signature import Signature


def copy_for(
    signature: Signature, request: InferRequest, priority: int, until_ns: int
) -> InferRequest:
    """The request as this version would have admitted it, asking for all outputs; its arrays are
    the same ones. `until_ns`: its deadline, on `time.monotonic_ns`.

    Raises InvalidRequest where the version takes other inputs, Unsupported where it is decoupled.
    """
    if signature.decoupled:
        raise Unsupported(f"'{signature.model}' is decoupled: its requests are not mirrored")
    for name, array in request.inputs.items():
        check_input(signature, request.id, name, BY_DTYPE[array.dtype].name, array.shape)
    rows, key = admit(signature, request.inputs, request.id)
    return InferRequest(
        signature.model,
        signature.version,
        request.inputs,
        rows,
        key,
        request.arrived_ns,
        request.id,
        parameters=request.parameters,
        priority=priority,
        deadline_ns=until_ns,
        principal=request.principal,
    )
