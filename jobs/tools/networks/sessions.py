"""Sessions of onnxruntime on one thread, and the shapes that they take."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from ml_dtypes import bfloat16

from jobs.tools.networks.files import first_line
from jobs.tools.networks.tensors import Array, NetworkTensor, Rows
from jobs.tools.work import refuse

_DTYPES: dict[str, Any] = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16,
    "tensor(bfloat16)": bfloat16, "tensor(int8)": np.int8, "tensor(uint8)": np.uint8,
    "tensor(int16)": np.int16, "tensor(uint16)": np.uint16, "tensor(int32)": np.int32,
    "tensor(uint32)": np.uint32, "tensor(int64)": np.int64, "tensor(uint64)": np.uint64,
    "tensor(bool)": np.bool_, "tensor(string)": np.object_,
}  # fmt: skip


def open_session(path: Path | bytes, whose: str, threads: int = 1) -> onnxruntime.InferenceSession:
    """A session on the CPU. Refuses a file that onnxruntime does not take, with its reason."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    given = path if isinstance(path, bytes) else str(path)
    try:
        return onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - also UnicodeDecodeError where a name has bad UTF-8
        refuse(f"onnxruntime cannot load the network of {whose}: {first_line(error)}")


def inputs_of(session: onnxruntime.InferenceSession) -> list[NetworkTensor]:
    """The inputs that a caller must give. Refuses a network that has none."""
    found = [_spec(one) for one in session.get_inputs()]
    if not found:
        refuse("the network has no inputs, so that it always answers the same")
    return found


def outputs_of(session: onnxruntime.InferenceSession) -> list[NetworkTensor]:
    """The outputs in their order."""
    return [_spec(one) for one in session.get_outputs()]


def fixed_rows(session: onnxruntime.InferenceSession) -> int:
    """The rows that each call must have; 0 where the first dimension of every input is open."""
    return max((one.shape[0] or 0 for one in inputs_of(session) if one.shape), default=0)


def run_rows(session: onnxruntime.InferenceSession, rows: Rows, batch: int = 8) -> dict[str, Array]:
    """Outputs for all rows, computed `batch` rows at a time, or as many as the network has fixed.

    Rows that do not fill a fixed batch are left out. Refuses fewer than that, and a
    network whose outputs do not have a row for each row of its inputs.
    """
    fixed = fixed_rows(session)
    batch = fixed or batch
    count = len(next(iter(rows.values())))
    if count < max(fixed, 1):
        refuse(
            f"the network takes {fixed or 1} rows in each call, and there are {count}; give more, "
            "or export it with an open number of rows"
        )
    parts: list[dict[str, Array]] = []
    for start in range(0, count - (fixed - 1 if fixed else 0), batch):
        part = {name: array[start : start + batch] for name, array in rows.items()}
        parts.append(_run(session, part))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _run(session: onnxruntime.InferenceSession, rows: Rows) -> dict[str, Array]:
    names = [one.name for one in session.get_outputs()]
    count = len(next(iter(rows.values())))
    try:
        found = dict(zip(names, session.run(None, dict(rows)), strict=True))
    except Exception as error:  # noqa: BLE001 - onnxruntime's errors have no common class
        refuse(f"the network does not run on rows like these: {first_line(error)}")
    for name, array in found.items():
        if not isinstance(array, np.ndarray) or not array.ndim or len(array) != count:
            got = array.shape if isinstance(array, np.ndarray) else type(array).__name__
            refuse(f"output '{name}' is {got} for {count} rows; it must have one row for each")
    return found


def _spec(tensor: Any) -> NetworkTensor:
    if tensor.type not in _DTYPES:
        refuse(f"tensor '{tensor.name}' is {tensor.type}; only tensors of numbers can be compared")
    shape = tuple(size if isinstance(size, int) and size > 0 else None for size in tensor.shape)
    return NetworkTensor(tensor.name, _DTYPES[tensor.type], shape)
