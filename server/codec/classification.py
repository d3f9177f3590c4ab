"""Classification: the best elements of an output as text, in the output's place.

A codec reads the wish while it decodes (`top`) and carries it beside the request; the response
comes here (`classified`) before it is encoded. Pure. Source: Triton's classification extension.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from repository.config.tensors import Array
from schedulers.request import InferResponse
from server.admit import MOST_STRINGS, bytes_array
from server.errors import InvalidRequest
from server.signature import Signature

_TEXT = dict.fromkeys(
    ("UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"), "%d"
) | {"FP32": "%f", "FP64": "%f"}
"""Data type → how C++'s `std::to_string` writes a value of it."""


class TopClasses(NamedTuple):
    """The `k` best elements of an output; of each row if `batched`.

    `labels[i]` names element i; it may be shorter than the output, and empty. `text` is the
    format of a value.
    """

    k: int
    batched: bool
    labels: tuple[str, ...]
    text: str


Tops = Mapping[str, TopClasses]
"""Output name → what is wanted instead of the output itself."""

NO_TOPS: Tops = {}


def top(signature: Signature, output: str, k: int) -> TopClasses:
    """The wish for the `k` (> 0) best elements of `output`.

    An output the model does not have is left to `server.admit` to refuse. Raises InvalidRequest
    for a data type that has no classes.
    """
    spec = signature.outputs.get(output)
    if spec is None:
        return TopClasses(k, False, (), "%d")
    text = _TEXT.get(spec.datatype)
    if text is None:
        raise InvalidRequest(
            "class result not available for output due to unsupported type "
            f"'{spec.datatype}': output '{output}' of model '{signature.model}' "
            f"version {signature.version}; classes are made of {', '.join(_TEXT)}"
        )
    return TopClasses(k, signature.max_batch > 0, spec.labels, text)


def classified(response: InferResponse, tops: Tops) -> InferResponse:
    """The response with the outputs named in `tops` as BYTES: [rows, k] if batched, else [k].

    k is what was asked for, or all elements if there are fewer. Elements are texts
    `value:index` or `value:index:label`, greatest value first, equal ones by index; NaN
    counts as the least. Raises InvalidRequest for more texts than an answer may have.
    """
    outputs = {
        name: _classes(name, array, tops[name]) if name in tops else array
        for name, array in response.outputs.items()
    }
    return replace(response, outputs=outputs)


def _classes(name: str, array: Array, wish: TopClasses) -> Array:
    rows = array.reshape(len(array), -1) if wish.batched else array.reshape(1, -1)
    k = min(wish.k, rows.shape[1])
    if len(rows) * k > MOST_STRINGS:
        raise InvalidRequest(
            f"the {k} best elements of each of {len(rows)} rows of output '{name}' are too many: "
            f"an answer may have {MOST_STRINGS} of them; ask for fewer, or for the output itself"
        )
    texts = [_text(row[index], index, wish) for row in rows for index in _best(row, k)]
    return bytes_array(texts, (len(rows), k) if wish.batched else (k,))


def _best(row: Array, k: int) -> list[int]:
    """Indices of the k greatest: sorted backwards, so that a stable sort keeps ties in order."""
    if row.dtype.kind == "f":
        row = np.where(np.isnan(row), -np.inf, row)
    ascending = np.argsort(row[::-1], kind="stable")
    found: list[int] = (len(row) - 1 - ascending[::-1][:k]).tolist()
    return found


def _text(value: object, index: int, wish: TopClasses) -> bytes:
    text = f"{wish.text % value}:{index}"
    label = wish.labels[index] if index < len(wish.labels) else ""
    return f"{text}:{label}".encode() if label else text.encode()
