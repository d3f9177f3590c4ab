"""A first request to a model, made from its config: all zeros, in the smallest shapes. Pure."""

import json
import shlex
from math import prod
from typing import Any

from repository.config.type_names import NAMES
from repository.model import ModelConfig

MOST_SHOWN = 64
"""Elements that are written out in a command; of more, a program writes the zeros."""

_VALUES: dict[str, Any] = {"BYTES": "text", "BOOL": False}


def sample_body(config: ModelConfig) -> dict[str, Any]:
    """The body of a v2 request; inputs that are optional are left out."""
    inputs = []
    for tensor in config.input:
        if tensor.optional:
            continue
        dims = [max(1, size) for size in tensor.dims]
        shape = [1, *dims] if config.max_batch_size else dims
        kind = NAMES.get(tensor.data_type, "FP32")
        data = [_VALUES.get(kind, 0)] * prod(shape)
        inputs.append({"name": tensor.name, "datatype": kind, "shape": shape, "data": data})
    return {"inputs": inputs}


def curl(config: ModelConfig, url: str) -> str:
    """A command of one line that sends the sample; `url`: of the server's REST port."""
    if config.backend == "llm":
        return _language_model(config, url)
    address = shlex.quote(f"{url}/v2/models/{config.name}/infer")
    body = sample_body(config)
    if all(len(one["data"]) <= MOST_SHOWN for one in body["inputs"]):
        return f"curl -s {address} -d {shlex.quote(json.dumps(body))}"
    program = f"import json; print(json.dumps({_program(body)}))"
    return f"python3 -c {shlex.quote(program)} | curl -s {address} -d @-"


def _program(body: dict[str, Any]) -> str:
    """The body as an expression of Python, long rows of zeros by their length."""
    rows = []
    for one in body["inputs"]:
        data = one["data"]
        text = f"[{data[0]!r}] * {len(data)}" if len(data) > MOST_SHOWN else repr(data)
        head = repr({name: value for name, value in one.items() if name != "data"})[:-1]
        rows.append(f"{head}, 'data': {text}}}")
    return f"{{'inputs': [{', '.join(rows)}]}}"


def _language_model(config: ModelConfig, url: str) -> str:
    if config.model_transaction_policy.decoupled:
        address, body = "/v1/completions", {"prompt": "Hello", "max_tokens": 16}
    else:
        address, body = "/v1/embeddings", {"input": "Hello"}
    text = json.dumps({"model": config.name, **body})
    header = shlex.quote("Content-Type: application/json")
    return f"curl -s {shlex.quote(url + address)} -H {header} -d {shlex.quote(text)}"


def tensors_text(config: ModelConfig, kind: str) -> str:
    """ "x FP32 [-1,4], y INT64 [-1]", with the batch dimension."""
    batch = [-1] if config.max_batch_size else []
    return ", ".join(
        f"{one.name} {NAMES.get(one.data_type, '?')} [{','.join(map(str, [*batch, *one.dims]))}]"
        + (" (optional)" if kind == "input" and one.optional else "")
        for one in getattr(config, kind)
    )
