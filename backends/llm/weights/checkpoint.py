"""Tensors of a checkpoint folder by name, read from safetensors when they are asked for.

Nothing but safetensors is read: a pickle would run code.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from backends.llm.config.fields import read_fields
from backends.llm.errors import BadCheckpoint
from backends.llm.ops.quantise import QuantisedTensor, Weight
from backends.llm.weights.headers import INDEX, SINGLE, plain_name
from backends.llm.weights.stored_weights import (
    PACKED,
    SCALE,
    WORD_BITS,
    bits_of,
    groups_of,
    words_of,
)


class Checkpoint:
    """The open files of a checkpoint; a context manager.

    Raises BadCheckpoint naming the file or tensor.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._files: dict[str, Any] = {}
        self._file_of = _file_of(folder)

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    @property
    def bytes(self) -> int:
        """The size of its files."""
        return sum((self._folder / file).stat().st_size for file in set(self._file_of.values()))

    def tensor(self, name: str, *shape: int) -> Tensor:
        """A copy of the tensor, which must have `shape`, in the floating type it is stored in."""
        # The file is mapped, and its owner may overwrite it while the model runs.
        return self._mapped(name, shape, None).clone()

    def _mapped(self, name: str, shape: tuple[int, ...], dtype: torch.dtype | None) -> Tensor:
        file = self._file_of.get(name)
        if file is None:
            raise BadCheckpoint(f"the checkpoint lacks the tensor '{name}'{self._has()}")
        try:
            tensor: Tensor = self._open(file).get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise BadCheckpoint(f"{file}: '{name}' cannot be read: {error}") from None
        if tuple(tensor.shape) != shape:
            raise BadCheckpoint(
                f"{file}: '{name}' has shape {list(tensor.shape)}, but config.json makes it "
                f"{list(shape)}"
            )
        if tensor.dtype != dtype and not (dtype is None and torch.is_floating_point(tensor)):
            wanted = "floating point" if dtype is None else f"{dtype}"
            raise BadCheckpoint(f"{file}: '{name}' is {tensor.dtype}; expected {wanted}")
        return tensor

    def weight(self, name: str, outputs: int, inputs: int) -> Weight:
        """A linear's weight [outputs, inputs]: whole numbers with scales where it is stored so. It
        lies in the mapped file, and is to be copied."""
        if name + SCALE not in self:
            return self._mapped(name, (outputs, inputs), None)
        if name + PACKED not in self:
            values = self._mapped(name, (outputs, inputs), torch.int8)
            return QuantisedTensor(values, self.tensor(name + SCALE, outputs, 1).float())
        bits = bits_of(self._shape(name + PACKED), inputs)
        words = self._mapped(name + PACKED, (outputs, words_of(inputs, bits)), torch.int32)
        scales = self.tensor(name + SCALE, outputs, groups_of(inputs, bits)).float()
        return QuantisedTensor(_unpacked(words, bits)[:, :inputs].contiguous(), scales)

    def first(self, names: Iterable[str]) -> str | None:
        """The first of `names` that is there."""
        return next((name for name in names if name in self._file_of), None)

    def _shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._open(self._file_of[name]).get_slice(name).get_shape())

    def _open(self, file: str) -> Any:
        if file not in self._files:
            opened = safe_open(self._folder / file, framework="pt")
            self._files[file] = self._stack.enter_context(opened)
        return self._files[file]

    def _has(self) -> str:
        examples = ", ".join(f"'{name}'" for name in list(self._file_of)[:3])
        return f"; it has {len(self._file_of)} others, such as {examples}"


def _unpacked(words: Tensor, bits: int) -> Tensor:
    """int32 [outputs, words] → int8 [outputs, words * 32 / bits]."""
    shifts = torch.arange(0, WORD_BITS, bits, dtype=torch.int32)
    whole = (words[..., None] >> shifts) & ((1 << bits) - 1)
    return (whole - (1 << (bits - 1))).to(torch.int8).flatten(1)


def _file_of(folder: Path) -> dict[str, str]:
    """Which file holds a tensor, by its name."""
    if (folder / INDEX).is_file():
        listed = read_fields(folder / INDEX).within("weight_map")
        if listed is None:
            raise BadCheckpoint(f"{INDEX} lacks 'weight_map'")
        return {name: plain_name(file) for name, file in listed.values.items()}
    if not (folder / SINGLE).is_file():
        raise BadCheckpoint(f"there is neither {SINGLE} nor {INDEX}; only safetensors are read")
    try:
        with safe_open(folder / SINGLE, framework="pt") as file:
            return dict.fromkeys(file.keys(), SINGLE)
    except (SafetensorError, OSError) as error:
        raise BadCheckpoint(f"{SINGLE} cannot be read: {error}") from None
