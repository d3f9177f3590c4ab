"""Tensors of weights that a checkpoint stores in 8 or 4 bits: names, types and shapes; no torch.

"pack-quantized" keeps whole numbers in int32 words, along the inputs, the first in the lowest
bits, each raised to be positive; "int-quantized" keeps them as int8 under the weight's own name.
"""

from collections.abc import Iterator, Mapping

from backends.llm.config.precision import GROUP
from backends.llm.errors import BadCheckpoint

PACKED, SCALE, COLUMN_GROUPS = "_packed", "_scale", "_g_idx"
"""What follows the weight's name in the names of its whole numbers, of its scales, and of the group
of each column where groups do not lie side by side."""
WORD_BITS = 32
FLOATS = ("F64", "F32", "F16", "BF16")

Stored = tuple[str, tuple[int, ...], tuple[str, ...]]
"""A tensor's name, its shape, and the types that it may have."""


def as_stored(
    name: str, shape: tuple[int, ...], shapes: Mapping[str, tuple[int, ...]]
) -> Iterator[Stored]:
    """The tensors that stand for one of the decoder's in a checkpoint with these `shapes`.

    Raises BadCheckpoint for groups that do not lie side by side.
    """
    if name + COLUMN_GROUPS in shapes:
        raise BadCheckpoint(
            f"the checkpoint has '{name}{COLUMN_GROUPS}': its columns are grouped in another order "
            "than they lie in, which is not read; quantise it again with the actorder 'weight' or "
            "none, or give the original bfloat16 checkpoint"
        )
    if name + SCALE not in shapes or len(shape) != 2:
        yield name, shape, FLOATS
        return
    outputs, inputs = shape
    packed = shapes.get(name + PACKED)
    if packed is None:
        yield name, shape, ("I8",)
        yield name + SCALE, (outputs, 1), FLOATS
        return
    bits = bits_of(packed, inputs)
    yield name + PACKED, (outputs, words_of(inputs, bits)), ("I32",)
    yield name + SCALE, (outputs, groups_of(inputs, bits)), FLOATS


def bits_of(packed: tuple[int, ...], inputs: int) -> int:
    """8 where the words of a row are as many as that takes, else 4."""
    return 8 if packed[-1:] == (words_of(inputs, 8),) else 4


def words_of(inputs: int, bits: int) -> int:
    """int32 words that hold a row of whole numbers."""
    return -(-inputs * bits // WORD_BITS)


def groups_of(inputs: int, bits: int) -> int:
    """Scales of an output."""
    return inputs // GROUP if bits == 4 else 1
