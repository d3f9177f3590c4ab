"""A request made of what was typed into fields, and an answer as it is shown. Pure."""

import base64
import binascii
import json
import math
import sys
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from admin_ui.services import ControlApiError

RAW = "base64:"
"""Before the bytes of a tensor, little-endian: what the image field of the page writes."""

MOST_SAMPLE = 64
MOST_VALUES, MOST_SHOWN = 2_000_000, 100
CLASSES = 5

_ARRAYS = {"FP32": "f", "FP64": "d", "UINT8": "B", "INT8": "b", "INT32": "i", "INT64": "q"}
_WHOLE = ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64")
_REAL = ("FP16", "BF16", "FP32", "FP64")
_TRUTHS = {"true": True, "false": False, "1": True, "0": False}

Row = Mapping[str, Any]


def shape_of(tensor: Row) -> list[int]:
    """Its shape with 1 wherever any size is taken."""
    return [max(1, size) for size in tensor["shape"]]


def sample(tensor: Row) -> str:
    """Something small that the tensor takes: one value fills a large one."""
    count = math.prod(shape_of(tensor))
    count = count if count <= MOST_SAMPLE else 1
    return " ".join(["text" if tensor["datatype"] == "BYTES" else "0"] * count)


def image_of(tensor: Row) -> dict[str, Any] | None:
    """Which picture fits: {"width", "height", "channels", "first"}, `first` where channels come
    before rows; None when the tensor is no picture."""
    sizes = list(tensor["shape"])
    if tensor["datatype"] not in ("FP32", "UINT8") or len(sizes) not in (3, 4):
        return None
    one, two, three = sizes[-3:]
    if one in (1, 3) and two > 4 and three > 4:
        return {"width": three, "height": two, "channels": one, "first": True}
    if three in (1, 3) and one > 4 and two > 4:
        return {"width": two, "height": one, "channels": three, "first": False}
    return None


def request_of(inputs: Sequence[Row], form: Mapping[str, str]) -> dict[str, Any]:
    """The body of an inference request. Raises ControlApiError naming the field."""
    tensors = []
    for tensor in inputs:
        name, datatype = tensor["name"], tensor["datatype"]
        shape = _shape(form.get(f"shape.{name}", ""), f"shape.{name}")
        data = _data(form.get(f"data.{name}", ""), datatype, shape, f"data.{name}")
        tensors.append({"name": name, "shape": shape, "datatype": datatype, "data": data})
    return {"inputs": tensors}


def values_in(text: str, datatype: str, field: str) -> list[Any]:
    """The values of a tensor in row order. Raises ControlApiError naming the field."""
    if text.startswith(RAW):
        return _raw(text.removeprefix(RAW), datatype, field)
    return [_value(part, datatype, field) for part in _parts(text, datatype, field)]


def laid_out(document: Any, indent: str = "") -> str:
    """JSON with a line for each member of an object, and lists of plain values on one line."""
    inner = indent + "  "
    if isinstance(document, dict) and document:
        rows = [f"{inner}{json.dumps(key)}: {laid_out(document[key], inner)}" for key in document]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    if isinstance(document, list) and any(isinstance(one, dict) for one in document):
        rows = [inner + laid_out(one, inner) for one in document]
        return "[\n" + ",\n".join(rows) + f"\n{indent}]"
    return json.dumps(document, ensure_ascii=False)


def body_of(text: str) -> dict[str, Any]:
    """The body as somebody wrote it. Raises ControlApiError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ControlApiError(
            422, "invalid", f"this is no JSON: {str(error)[:200]}", "body"
        ) from None
    if not isinstance(found, dict):
        raise ControlApiError(422, "invalid", 'a request is an object with "inputs"', "body")
    return found


def output_rows(answer: Row) -> list[dict[str, Any]]:
    """Each output with its first values, and as classes where it has them."""
    return [_output(one) for one in answer.get("outputs") or () if isinstance(one, Mapping)]


def _output(one: Row) -> dict[str, Any]:
    data = one.get("data")
    values = data if isinstance(data, list) else []
    shown = {
        "name": str(one.get("name", "")),
        "datatype": str(one.get("datatype", "")),
        "shape": one.get("shape") or [],
        "values": [json.dumps(value, ensure_ascii=False) for value in values[:MOST_SHOWN]],
        "more": max(0, len(values) - MOST_SHOWN),
    }
    return {**shown, "classes": [found for value in values if (found := _class(value))]}


def _class(value: object) -> dict[str, str] | None:
    """ "0.93:7:seven" as the classification extension writes it."""
    if not isinstance(value, str) or value.count(":") < 1:
        return None
    score, index, *label = value.split(":", 2)
    try:
        float(score)
        int(index)
    except ValueError:
        return None
    return {"score": score, "index": index, "label": label[0] if label else ""}


def _shape(text: str, field: str) -> list[int]:
    parts = text.replace("[", " ").replace("]", " ").replace(",", " ").replace("x", " ").split()
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise ControlApiError(
            422, "invalid", f"'{text[:80]}' is no shape; give sizes, e.g. 1, 4", field
        )
    shape = [int(part) for part in parts]
    if math.prod(shape) > MOST_VALUES:
        wrong = f"a shape of {math.prod(shape):,} values; {MOST_VALUES:,} at most here"
        raise ControlApiError(422, "invalid", wrong, field)
    return shape


def _data(text: str, datatype: str, shape: Sequence[int], field: str) -> list[Any]:
    found = values_in(text, datatype, field)
    if len(found) == 1 and not text.startswith(RAW):
        found *= math.prod(shape)  # one value fills it
    if len(found) != math.prod(shape):
        wrong = f"{len(found):,} values; the shape takes {math.prod(shape):,}"
        raise ControlApiError(422, "invalid", wrong, field)
    return found


def _parts(text: str, datatype: str, field: str) -> list[Any]:
    """JSON, nested or not; lines of text; or numbers apart by spaces or commas."""
    if text.lstrip().startswith("["):
        try:
            return _flat(json.loads(text))
        except (ValueError, RecursionError) as error:
            wrong = f"this list is no JSON: {str(error)[:200]}"
            raise ControlApiError(422, "invalid", wrong, field) from None
    if datatype == "BYTES":
        return text.splitlines() or [""]
    return text.replace(",", " ").split()


def _flat(value: Any) -> list[Any]:
    if not isinstance(value, list):
        return [value]
    return [one for part in value for one in _flat(part)]


def _value(part: Any, datatype: str, field: str) -> Any:
    if datatype == "BYTES":
        return str(part)
    if isinstance(part, bool) or datatype == "BOOL":
        found = _TRUTHS.get(str(part).lower())
    else:
        found = _number(part, datatype)
    if found is None:
        wrong = f"'{str(part)[:60]}' is no {datatype}"
        raise ControlApiError(422, "invalid", wrong, field)
    return found


def _number(part: Any, datatype: str) -> Any:
    """None for what is no number of this type."""
    try:
        if datatype in _WHOLE:
            return int(str(part))
        found = float(str(part))
    except ValueError:
        return None
    return found if datatype in _REAL and math.isfinite(found) else None


def _raw(text: str, datatype: str, field: str) -> list[Any]:
    kind = _ARRAYS.get(datatype)
    try:
        if kind is None:
            raise ValueError(f"bytes are not taken for {datatype}")
        found = array(kind, base64.b64decode(text, validate=True))
    except (ValueError, binascii.Error) as error:
        raise ControlApiError(
            422, "invalid", f"these bytes cannot be read: {error}", field
        ) from None
    if sys.byteorder == "big":
        found.byteswap()
    return found.tolist()
