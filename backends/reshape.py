"""`reshape`: the shapes a model has, where its requests and responses have others.

Source: Triton's `InferenceRequest::Normalize` and `InferenceResponse::Output::Reshape`, which hold
for every backend. Pure.
"""

from collections.abc import Mapping

from backends.seam import Tensors
from repository.config.tensors import Array
from repository.model import ModelConfig

Dims = tuple[int, ...]
ShapeChanges = Mapping[str, tuple[Dims, Dims]]
"""By tensor: the dims it comes in and the dims it goes on in, without the batch, -1 for any."""


def input_changes(config: ModelConfig) -> ShapeChanges:
    """From a request's shape to the model's, of the inputs that have a `reshape`."""
    return {
        tensor.name: (tuple(tensor.dims), tuple(tensor.reshape.shape))
        for tensor in config.input
        if tensor.HasField("reshape")
    }


def output_changes(config: ModelConfig) -> ShapeChanges:
    """From the model's shape to a response's, of the outputs that have a `reshape`."""
    return {
        tensor.name: (tuple(tensor.reshape.shape), tuple(tensor.dims))
        for tensor in config.output
        if tensor.HasField("reshape")
    }


def reshaped(tensors: Tensors, changes: ShapeChanges, batched: bool) -> dict[str, Array]:
    """`tensors` in their new shapes, as views; those without a `reshape` as they are.

    `batched`: dimension 0 is the batch and stays. Raises ValueError where a shape does not fit.
    """
    return {
        name: reshape(array, *changes[name], batched) if name in changes else array
        for name, array in tensors.items()
    }


def reshape(array: Array, before: Dims, after: Dims, batched: bool) -> Array:
    """Each -1 of `after` takes the size the same -1 of `before` has in `array`."""
    lead, model_shape = (array.shape[:1], array.shape[1:]) if batched else ((), array.shape)
    free = iter([size for size, dim in zip(model_shape, before, strict=True) if dim == -1])
    return array.reshape(lead + tuple(next(free) if dim == -1 else dim for dim in after))
