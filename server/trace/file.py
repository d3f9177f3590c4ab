"""Traces as JSON files in Triton's form: one array of objects, complete after every write.

Called by the thread of `server.trace.writer`. With a log frequency of N every N traces get a file
of their own: `<file>.0`, `<file>.1` and so on. Triton's `trace_summary.py` reads them.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from repository.config.tensors import BY_DTYPE
from repository.files.private import opener, write
from server.settings.trace_settings import TIMESTAMPS
from server.trace.record import Trace, TracedTensor
from server.trace.sampling import Sampler

_log = logging.getLogger(__name__)


class TraceFile:
    """The sink of mode "triton". What was in `path` before is overwritten by the first trace."""

    queue_size = 8192
    batch_size = 256
    delay_secs = 0.02

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begun = False
        self._next = 0
        self._held: dict[Sampler, list[bytes]] = {}

    def write(self, traces: Sequence[Trace]) -> int:
        """Append them, or hold them until their file is full. How many could not be written."""
        plain: list[bytes] = []
        lost = 0
        for trace in traces:
            often = trace.sampler.settings.log_frequency
            if not often:
                plain.append(render(trace))
                continue
            held = self._held.setdefault(trace.sampler, [])
            held.append(render(trace))
            if len(held) >= often:
                lost += self._write_numbered(trace.sampler)
        return lost + (self._append(plain) if plain else 0)

    def retire(self, sampler: Sampler) -> None:
        """Write what is held for it, though the file is not full."""
        if sampler in self._held:
            self._write_numbered(sampler)

    def close(self) -> None:
        for sampler in list(self._held):
            self._write_numbered(sampler)

    def _write_numbered(self, sampler: Sampler) -> int:
        traces = self._held.pop(sampler)
        path = self._path.with_name(f"{self._path.name}.{self._next}")
        self._next += 1
        try:
            write(path, b"[" + b",\n".join(traces) + b"]\n")
        except OSError as error:
            return _lose(path, traces, error)
        return 0

    def _append(self, traces: list[bytes]) -> int:
        """Between the last object and the closing bracket, so that readers always find JSON."""
        try:
            with open(self._path, "r+b" if self._begun else "wb", opener=opener) as file:
                if self._begun:
                    file.seek(-len(_END), 2)
                file.write((b",\n" if self._begun else b"[") + b",\n".join(traces) + _END)
        except OSError as error:
            return _lose(self._path, traces, error)
        self._begun = True
        return 0


_END = b"]\n"


def _lose(path: Path, traces: list[bytes], error: OSError) -> int:
    _log.error("%d traces lost: '%s' cannot be written: %s", len(traces), path, error.strerror)
    return len(traces)


def render(trace: Trace) -> bytes:
    """The trace's objects, separated by commas: who it was, its points, its tensors."""
    return b",\n".join(orjson.dumps(one) for one in _objects(trace))


def _objects(trace: Trace) -> Iterator[dict[str, Any]]:
    who: dict[str, Any] = {
        "id": trace.number,
        "model_name": trace.model,
        "model_version": trace.version,
    }
    if trace.request_id:
        who["request_id"] = trace.request_id
    if trace.parent_number:
        who["parent_id"] = trace.parent_number
    if trace.arm:
        who["route"] = trace.arm
    yield who
    if TIMESTAMPS in trace.sampler.settings.level:
        for name, ns in trace.points:
            yield {"id": trace.number, "timestamps": [{"name": name, "ns": ns}]}
    for tensor in trace.tensors:
        yield {"id": trace.number, "activity": tensor.activity, "tensor": _tensor(tensor)}


def _tensor(tensor: TracedTensor) -> dict[str, str]:
    array = tensor.array
    return {
        "name": tensor.name,
        "data": ",".join(_text(element) for element in array.ravel().tolist()),
        "shape": ",".join(map(str, array.shape)),
        "dtype": BY_DTYPE[array.dtype].name if array.dtype != np.object_ else "BYTES",
    }


def _text(element: Any) -> str:
    """As Triton prints it: 1 for true, BYTES in quotes."""
    if isinstance(element, bytes):
        return '"' + element.decode("utf-8", "backslashreplace") + '"'
    return str(int(element)) if isinstance(element, bool) else str(element)
