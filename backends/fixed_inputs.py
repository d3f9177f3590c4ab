"""Models whose requests of as many rows are all as large, whoever sends them.

What does as much as the shapes of its inputs say may then be short for certain; see `loop_safe` of
`backends.seam`.
"""

from math import prod

from tritonclient.grpc import model_config_pb2 as pb

from repository.config.tensors import BY_CONFIG
from repository.model import ModelConfig

MOST_BYTES = 16 << 20
"""Inputs of the largest batch; copying so many takes about 4 ms."""


def has_fixed_inputs(config: ModelConfig) -> bool:
    """Whether a batch of a model with this completed config has inputs of numbers whose dims are
    fixed, MOST_BYTES of them at most. A string may have any length, in and out."""
    sequences = config.sequence_batching
    tensors = [*config.input, *sequences.state]
    if any(tensor.allow_ragged_batch for tensor in config.input) or config.batch_input:
        return False
    controls = [each for one in sequences.control_input for each in one.control]
    if any(one.data_type == pb.TYPE_STRING for one in (*tensors, *config.output, *controls)):
        return False
    if any(dim < 0 for tensor in tensors for dim in tensor.dims):
        return False
    sizes = (prod(tensor.dims) * BY_CONFIG[tensor.data_type].itemsize for tensor in tensors)
    row: int = sum(sizes)
    rows: int = max(config.max_batch_size, 1)
    return row * rows <= MOST_BYTES
