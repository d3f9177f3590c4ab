"""Hold the inputs of a call from inside the server against the signature of the model it is for."""

from backends.seam import Tensors
from repository.config.tensors import BY_DTYPE, Array
from server.admit import MOST_PARAMETERS, MOST_TENSORS, admit, check_counts, check_input, refuse
from server.signature import Signature


def check_call(
    signature: Signature,
    inputs: Tensors,
    outputs: tuple[str, ...],
    parameters: int,
    request_id: str,
) -> tuple[int, object]:
    """Rows and shape key of a call's inputs, as of `InferRequest`; it asks for `outputs`, and has
    so many `parameters`. Raises InvalidRequest.

    Nearly always each input is there, of its one type and shape; for all else the checks of
    clients' requests have the words.
    """
    specs, rows = signature.inputs, -1
    known = len(outputs) <= MOST_TENSORS and all(map(signature.outputs.__contains__, outputs))
    if signature.max_batch and len(inputs) == len(specs) and known:
        for name, array in inputs.items():
            spec, shape = specs.get(name), array.shape
            if (
                spec is None
                or array.dtype is not spec.dtype
                or not spec.itemsize
                or not shape
                or shape[1:] != spec.fixed
                or shape[0] != rows >= 0
            ):
                break
            rows = shape[0]
        else:
            if 0 < rows <= signature.max_batch and parameters <= MOST_PARAMETERS:
                return rows, None
    check_counts(signature, request_id, len(inputs), len(outputs), parameters)
    strings = 0
    for name, array in inputs.items():
        datatype = _datatype(signature, request_id, name, array)
        spec = check_input(signature, request_id, name, datatype, array.shape, strings)
        if not spec.itemsize:
            strings += array.size
    return admit(signature, inputs, request_id, outputs)


def _datatype(signature: Signature, request_id: str, name: str, array: Array) -> str:
    """The name of an array's type. Raises InvalidRequest for one that no protocol has."""
    found = BY_DTYPE.get(array.dtype)
    if found is None:
        refuse(
            request_id,
            f"inference input '{name}' for model '{signature.model}' has elements of "
            f"{array.dtype}, which no data type of the protocol stands for",
        )
    return found.name
