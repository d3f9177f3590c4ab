"""The states that an instance keeps of its sequences, by slot: an output of one request is an input
of the next.

A batch whose rows stand as they stood in the batch before gets a copy of that batch's whole output;
otherwise rows are gathered. Source of the semantics: Triton's implicit state.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
from tritonclient.grpc import model_config_pb2 as pb

from backends.artefact import refuse
from backends.errors import FaultyModel
from backends.seam import Tensors
from repository.config.tensors import BY_CONFIG, Array
from repository.files.plain_files import open_plain
from repository.model import ModelVersion

FOLDER = "initial_state"
"""Below the model's folder: where the files of initial states are."""
_LENGTH_BYTES = 4


class StateTensor(NamedTuple):
    """One state: the input that it is fed to, the output that it comes from, one row of what a
    sequence begins with, and its config's dimensions."""

    input_name: str
    output_name: str
    initial: Array
    dims: tuple[int, ...]

    @property
    def variable(self) -> bool:
        """Whether its shape may change from request to request."""
        return -1 in self.dims


class _Stack:
    """The states after one execution; `order[r]` is the slot whose rows are at `r`, and `slots`
    are those that still have their states here."""

    __slots__ = ("arrays", "order", "size_bytes", "slots")

    def __init__(self, arrays: Tensors, order: tuple[int, ...]) -> None:
        self.arrays = arrays
        self.order = order
        self.size_bytes = sum(map(_size, arrays.values()))
        self.slots = set(order)


class SlotStates:
    """States of the sequences of one instance; on its thread.

    What it gives out is a copy: a model may write to its inputs, and an execution may fail halfway.
    Memory is at most twice what the sequences need: where fewer than half of an execution's rows
    still count, they are copied out.
    """

    def __init__(self, tensors: Sequence[StateTensor], batched: bool, where: str) -> None:
        """`where`: the model and its version, for errors. `size_bytes`: of what is kept, rows of
        an execution that no longer count included; any thread may read it."""
        self._tensors = tensors
        self._batched = batched
        self._where = where
        self._kept: dict[int, tuple[_Stack, int]] = {}
        self.size_bytes = 0
        self.variable = any(tensor.variable for tensor in tensors)

    def __len__(self) -> int:
        return len(self._kept)

    def row(self, slot: int, starts: bool) -> dict[str, Array]:
        """The states of one slot by input name: [1, …] when the model batches, else as they are."""
        return {name: array.copy() for name, array in self._view(slot, starts).items()}

    def _view(self, slot: int, starts: bool) -> dict[str, Array]:
        kept = None if starts else self._kept.get(slot)
        if kept is None:
            return {tensor.input_name: tensor.initial for tensor in self._tensors}
        stack, at = kept
        if not self._batched:
            return dict(stack.arrays)
        return {name: array[at : at + 1] for name, array in stack.arrays.items()}

    def gather(
        self, slots: Sequence[int], starts: Sequence[bool], rows: Sequence[int], height: int
    ) -> Mapping[str, Array]:
        """The states of a batch, stacked; rows without a member get the initial state, or zeros
        where that has another shape. The members' shapes behind the first dimension must be equal.
        """
        first = self._kept.get(slots[0])
        if first is not None and len(slots) == height and not any(starts):
            stack = first[0]
            if len(stack.slots) == height and stack.order == tuple(slots):
                return {name: array.copy() for name, array in stack.arrays.items()}
        member_of = {row: index for index, row in enumerate(rows)}
        views = [self._view(slot, start) for slot, start in zip(slots, starts, strict=True)]
        nobody = self._of_nobody(views[0])
        parts = [
            nobody if (index := member_of.get(row)) is None else views[index]
            for row in range(height)
        ]
        return {
            tensor.input_name: np.concatenate([part[tensor.input_name] for part in parts])
            for tensor in self._tensors
        }

    def _of_nobody(self, like: dict[str, Array]) -> dict[str, Array]:
        """The states of a row without a member, beside members whose states are as `like`."""
        found = {}
        for tensor in self._tensors:
            initial, shape = tensor.initial, like[tensor.input_name].shape
            if initial.shape != shape:
                initial = np.full(shape, b"" if initial.dtype == np.object_ else 0, initial.dtype)
            found[tensor.input_name] = initial
        return found

    def shapes(self, slot: int, starts: bool) -> tuple[tuple[int, ...], ...]:
        """Of the states of one slot, in the order of the config."""
        row = self._view(slot, starts)
        return tuple(row[tensor.input_name].shape for tensor in self._tensors)

    def keep(
        self,
        outputs: Tensors,
        slots: Sequence[int],
        rows: Sequence[int],
        height: int,
        inputs: Sequence[Array],
    ) -> None:
        """Keep the states of `slots`, at `rows` of the `height` rows of `outputs`. What lies in the
        memory of one of `inputs`, which are the caller's, is copied.

        Raises FaultyModel where a state is not of its config's shape, and changes nothing then.
        """
        if not self._tensors:
            return
        for tensor in self._tensors:
            self._check_shape(tensor, outputs[tensor.output_name].shape, height)
        arrays = {
            tensor.input_name: _own(outputs[tensor.output_name], inputs) for tensor in self._tensors
        }
        self.drop(slots)
        order = [-1] * height
        for slot, row in zip(slots, rows, strict=True):
            order[row] = slot
        stack = _Stack(arrays, tuple(order))
        stack.slots.discard(-1)
        self.size_bytes += stack.size_bytes
        for slot, row in zip(slots, rows, strict=True):
            self._kept[slot] = (stack, row)
        self._compact([stack])

    def _check_shape(self, tensor: StateTensor, shape: tuple[int, ...], height: int) -> None:
        wanted = (height, *tensor.dims) if self._batched else tensor.dims
        if len(shape) != len(wanted) or any(
            size not in (-1, got) for size, got in zip(wanted, shape, strict=True)
        ):
            raise FaultyModel(
                f"{self._where} is faulty: it returned state '{tensor.output_name}' with shape "
                f"{list(shape)}, its config says {list(wanted)}"
            )

    def drop(self, slots: Sequence[int]) -> None:
        """Forget the states of these slots."""
        left: dict[int, _Stack] = {}
        for slot in slots:
            kept = self._kept.pop(slot, None)
            if kept is not None:
                stack = kept[0]
                stack.slots.discard(slot)
                left[id(stack)] = stack
        self.size_bytes -= sum(stack.size_bytes for stack in left.values() if not stack.slots)
        self._compact(left.values())

    def _compact(self, stacks: Iterable[_Stack]) -> None:
        if not self._batched:
            return
        for stack in stacks:
            if 0 < 2 * len(stack.slots) < len(stack.order):
                for slot in stack.slots:
                    at = self._kept[slot][1]
                    own = {name: array[at : at + 1].copy() for name, array in stack.arrays.items()}
                    single = _Stack(own, (slot,))
                    self._kept[slot] = (single, 0)
                    self.size_bytes += single.size_bytes
                self.size_bytes -= stack.size_bytes
                stack.slots = set()


def _size(array: Array) -> int:
    """Bytes; of texts their own as well."""
    return array.nbytes + (sum(map(len, array.flat)) if array.dtype == np.object_ else 0)


def _own(array: Array, inputs: Sequence[Array]) -> Array:
    if any(np.may_share_memory(array, one) for one in inputs):
        return array.copy()
    return array


def state_tensors(version: ModelVersion) -> list[StateTensor]:
    """Those of a version's config, with their initial states read. Raises LoadFailed."""
    config = version.config
    return [
        StateTensor(
            state.input_name, state.output_name, _initial(version, state), tuple(state.dims)
        )
        for state in config.sequence_batching.state
    ]


def _initial(version: ModelVersion, state: pb.ModelSequenceBatching.State) -> Array:
    """One row of what a sequence begins with: zeros (or empty texts) unless a file says otherwise;
    a dimension of any size begins with 1."""
    dtype = BY_CONFIG[state.data_type].dtype
    given = state.initial_state[0] if state.initial_state else None
    dims = list(given.dims) if given is not None and given.dims else list(state.dims)
    shape = tuple(1 if dim == -1 else dim for dim in dims)
    if version.config.max_batch_size > 0:
        shape = (1, *shape)
    if given is not None and given.WhichOneof("state_data") == "data_file":
        return _from_file(version, state.input_name, given.data_file, dtype, shape)
    return np.full(shape, b"", np.object_) if dtype == np.object_ else np.zeros(shape, dtype)


def _from_file(
    version: ModelVersion,
    name: str,
    file: str,
    dtype: np.dtype[np.generic],
    shape: tuple[int, ...],
) -> Array:
    where = f"data_file '{file}' of the initial state of '{name}'"
    path = version.folder / FOLDER / file
    if not path.resolve().is_relative_to((version.folder / FOLDER).resolve()):
        refuse(version, f"{where} leads out of the model's folder {FOLDER}/")
    try:
        with open(open_plain(path), "rb") as opened:
            data = opened.read()
    except OSError as error:
        refuse(version, f"{where} cannot be read from {FOLDER}/: {error.strerror}")
    if dtype == np.object_:
        texts = _texts(data)
        if len(texts) != prod(shape):
            refuse(version, f"{where} has {len(texts)} texts; {prod(shape)} are needed")
        array: Array = np.empty(len(texts), np.object_)
        array[:] = texts
        return array.reshape(shape)
    expected = prod(shape) * dtype.itemsize
    if len(data) != expected:
        refuse(version, f"{where} has {len(data)} bytes; shape {list(shape)} needs {expected}")
    return np.frombuffer(data, dtype).reshape(shape)


def _texts(data: bytes) -> list[bytes]:
    """As BYTES on the wire: each behind its length, a little-endian uint32."""
    texts: list[bytes] = []
    at = 0
    while at + _LENGTH_BYTES <= len(data):
        length = int.from_bytes(data[at : at + _LENGTH_BYTES], "little")
        at += _LENGTH_BYTES
        texts.append(data[at : at + length])
        at += length
    return texts if at == len(data) else []
