"""Raw requests: the whole body is the one input's data, its shape deduced from the model. Pure.

`server.rest.infer` comes here instead of `server.codec.json_infer` when the client states a JSON
header of length 0. Source: Triton's binary-tensor extension, "raw binary request".
"""

from math import prod

from server.admit import admit, element_count, refuse, tensor_from_bytes
from server.codec.output_format import InferBody, OutputFormat
from server.signature import Signature, TensorSpec


def decode_raw(body: bytes, signature: Signature) -> InferBody:
    """The request in `body`: one row of the model's only input; all outputs wanted as binary.

    Raises InvalidRequest in Triton's words.
    """
    if len(signature.inputs) != 1:
        refuse(
            "",
            "Raw request must only have 1 input (found 1) to be deduced but got "
            f"{len(signature.inputs)} inputs in '{signature.model}' model configuration",
        )
    (spec,) = signature.inputs.values()
    shape = _shape(spec, len(body))
    data = body if spec.itemsize else len(body).to_bytes(4, "little") + body
    if signature.max_batch:
        shape = (1, *shape)
    array = tensor_from_bytes(signature, "", spec, shape, data)
    inputs = {spec.name: array}
    rows, key = admit(signature, inputs)
    return InferBody("", inputs, rows, key, form=OutputFormat(binary=True))


def _shape(spec: TensorSpec, size_bytes: int) -> tuple[int, ...]:
    """The shape of one row of `size_bytes`; whether they fit exactly is checked later."""
    open_dims = spec.dims.count(-1)
    if open_dims > 1:
        refuse(
            "",
            f"The shape of the raw input '{spec.name}' can not be deduced because there are more "
            "than one variable-sized dimension",
        )
    if not spec.itemsize:
        if open_dims or element_count(spec.dims) != 1:
            refuse(
                "",
                f"For BYTE datatype raw input '{spec.name}', the model must have input shape [1]",
            )
        return spec.dims
    fixed = prod(dim for dim in spec.dims if dim != -1)
    open_size = size_bytes // (fixed * spec.itemsize) if fixed else 0
    return tuple(open_size if dim == -1 else dim for dim in spec.dims)
