"""The control inputs of a sequence model: START, READY, END and CORRID, for each row.

Source of the kinds and their values: Triton's `ModelSequenceBatching.Control`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from tritonclient.grpc import model_config_pb2 as pb

from backends.seam import SEQUENCE_END, SEQUENCE_START
from backends.sequences.expansion import control_type
from repository.config.tensors import BY_CONFIG, Array
from repository.model import ModelConfig

_CONTROL = pb.ModelSequenceBatching.Control
_READY = 4
_BITS = {
    _CONTROL.CONTROL_SEQUENCE_START: SEQUENCE_START,
    _CONTROL.CONTROL_SEQUENCE_END: SEQUENCE_END,
    _CONTROL.CONTROL_SEQUENCE_READY: _READY,
}
_MOST_KEPT = 64
"""Arrays of flags that are kept, because most batches have no flag at all."""


class _Flag(NamedTuple):
    """A control that is one of two values: `values[0]` where the bit is not set."""

    name: str
    bit: int
    values: Array


class Controls:
    """Makes the control arrays of one model; on its instance's thread."""

    def __init__(self, config: ModelConfig) -> None:
        self._flags: list[_Flag] = []
        self._key_name = ""
        self._key_dtype: np.dtype[np.generic] = np.dtype(np.uint64)
        self._kept: dict[tuple[object, ...], Mapping[str, Array]] = {}
        for control_input in config.sequence_batching.control_input:
            for control in control_input.control:
                dtype = BY_CONFIG[control_type(control)].dtype
                if control.kind == _CONTROL.CONTROL_SEQUENCE_CORRID:
                    self._key_name, self._key_dtype = control_input.name, dtype
                    continue
                pair = (
                    control.fp32_false_true or control.bool_false_true or control.int32_false_true
                )
                values = np.array(list(pair), dtype)
                self._flags.append(_Flag(control_input.name, _BITS[control.kind], values))

    @property
    def has_keys(self) -> bool:
        """Whether `arrays` looks at the members' keys."""
        return bool(self._key_name)

    def arrays(
        self, flags: Sequence[int], keys: Sequence[int | str], rows: Sequence[int], height: int
    ) -> dict[str, Array]:
        """Every control as [height, 1]. Member i stands in row `rows[i]` with `flags[i]`; rows that
        no member stands in are not READY, have no flag, and the correlation id 0."""
        if not self._flags and not self._key_name:
            return {}
        kind = (tuple(flags), tuple(rows), height)
        arrays = self._kept.get(kind)
        if arrays is None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            arrays = self._kept[kind] = self._flag_arrays(flags, rows, height)
        if not self._key_name:
            return dict(arrays)
        return {**arrays, self._key_name: self._key_array(keys, rows, height)}

    def _flag_arrays(
        self, flags: Sequence[int], rows: Sequence[int], height: int
    ) -> Mapping[str, Array]:
        bits = np.zeros(height, np.int64)
        bits[list(rows)] = [flag | _READY for flag in flags]
        made = {}
        for name, bit, values in self._flags:
            made[name] = array = values[(bits & bit != 0).astype(np.intp)].reshape(height, 1)
            array.flags.writeable = False
        return made

    def _key_array(self, keys: Sequence[int | str], rows: Sequence[int], height: int) -> Array:
        if self._key_dtype == np.object_:
            texts = np.full(height, b"", np.object_)
            texts[list(rows)] = [_text(key) for key in keys]
            return texts.reshape(height, 1)
        numbers = np.zeros(height, np.uint64)
        numbers[list(rows)] = [int(key) & 0xFFFF_FFFF_FFFF_FFFF for key in keys]
        return numbers.astype(self._key_dtype).reshape(height, 1)


def _text(key: int | str) -> bytes:
    return str(key).encode("utf-8", "surrogateescape")
