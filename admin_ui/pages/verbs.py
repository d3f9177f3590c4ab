"""The verb that a model answers over REST, the requests made for it and its answers read. Pure.

`infer` answers once and refuses decoupled models. `generate` takes those that answer once, as
language models do unless they stream, and `generate_stream` any number of answers, as events.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from admin_ui.pages.tensors import MOST_VALUES, request_of, sample, shape_of, values_in
from admin_ui.services import ControlApiError

INFER, GENERATE, STREAM = "infer", "generate", "generate_stream"

LANGUAGE = "llm"
"""The backend of language models."""
PROMPT = "Once upon a time"
SAMPLING: Mapping[str, Any] = {"max_tokens": 64, "temperature": 0.7}

_SAMPLES = {"text_input": PROMPT, "sampling_parameters": json.dumps(SAMPLING)}
_EVENT = b"data:"

Row = Mapping[str, Any]


def verb_of(config: Row) -> str:
    """Select the verb by the config as it is served; `infer` where none is known."""
    if not (config.get("model_transaction_policy") or {}).get("decoupled"):
        return INFER
    return GENERATE if config.get("backend") == LANGUAGE else STREAM


def fields_of(metadata: Row, config: Row) -> list[dict[str, Any]]:
    """The inputs with what the form needs of each: `optional`, `usual_shape`, `sample`."""
    known = {one.get("name"): one for one in config.get("input") or ()}
    language = verb_of(config) == GENERATE
    return [
        _field(one, bool(known.get(one["name"], {}).get("optional")), language)
        for one in metadata.get("inputs") or ()
    ]


def request_for(verb: str, inputs: Sequence[Row], form: Mapping[str, str]) -> dict[str, Any]:
    """The body made of a form. Optional inputs without values are left out.

    Raises ControlApiError naming the field.
    """
    given = [one for one in inputs if not one.get("optional") or form.get(f"data.{one['name']}")]
    if verb == INFER:
        return request_of(given, form)
    return {one["name"]: _member(one, form) for one in given}


def sample_request(verb: str, inputs: Sequence[Row]) -> dict[str, Any]:
    """A request that the model takes."""
    if verb == GENERATE:
        return {"text_input": PROMPT, **SAMPLING, "exclude_input_in_output": True}
    form = {f"data.{one['name']}": "\n".join(one["sample"].split()) for one in inputs}
    form |= {f"shape.{one['name']}": one["usual_shape"] for one in inputs}
    try:
        return request_for(verb, inputs, form)
    except ControlApiError:  # too many values to write a sample of
        if verb != INFER:
            return {one["name"]: ["..."] for one in inputs}
        rows = [{"name": one["name"], "shape": shape_of(one)} for one in inputs]
        return {"inputs": [{**row, "data": ["..."]} for row in rows]}


def documents_in(body: bytes) -> list[dict[str, Any]]:
    """The JSON objects of an answer: one, or one for each server-sent event."""
    lines = [line[len(_EVENT) :] for line in body.splitlines() if line.startswith(_EVENT)]
    return [_document(one) for one in lines or [body]]


def outputs_in(documents: Sequence[Row], outputs: Sequence[Row]) -> Row:
    """An answer of `infer` as it is; of the others, their values in the same form."""
    if any("outputs" in one for one in documents):
        return documents[0]
    found = []
    for output in outputs:
        values: list[Any] = []
        for one in documents:
            value = one.get(output["name"], [])
            values += value if isinstance(value, list) else [value]
        if values:
            found.append({**output, "data": values})
    return {"outputs": found}


def _field(tensor: Row, optional: bool, language: bool) -> dict[str, Any]:
    known = _SAMPLES.get(tensor["name"], "") if language else ""
    shape = ", ".join(str(size) for size in shape_of(tensor))
    usual = known or ("" if optional else sample(tensor))
    return {**tensor, "optional": optional, "usual_shape": shape, "sample": usual}


def _member(tensor: Row, form: Mapping[str, str]) -> Any:
    """A flat list, or the only value; the server makes the shape of how many there are."""
    field, sizes = f"data.{tensor['name']}", tensor["shape"]
    found = values_in(form.get(field, ""), tensor["datatype"], field)
    if len(found) == 1 and all(1 <= size <= MOST_VALUES for size in sizes):
        found *= min(math.prod(sizes), MOST_VALUES)  # one value fills it
    return found[0] if len(found) == 1 else found


def _document(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {"error": text[:1000].decode(errors="replace")}
    return found if isinstance(found, dict) else {"error": str(found)[:1000]}
