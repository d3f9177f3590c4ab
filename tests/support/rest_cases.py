"""Requests Schemathesis makes from a server's own description, half of them for models there are.

The description allows any name, so almost every case would be about an unknown model; `aimed` makes
a second one of it, with names that exist and bodies that a model nearly takes.
"""

import copy
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode

from support.server import Server, identity_config, write_identity

Schema = dict[str, Any]
ANSWER_SECS = 60.0
INFER_WEIGHT = 3
DECOUPLED = (
    "model_transaction_policy { decoupled: true }\n"
    'parameters { key: "responses" value { string_value: "3" } }\n'
)
KINDS = (
    *("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"),
    *("FP16", "FP32", "FP64", "BF16", "BYTES"),
)
WIDE = """
name: "wide" backend: "identity"
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1, -1, -1 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1, -1, -1 ] }
"""
INFERRING = ["echo", "several", "kinds", "wide"]


def write_models(repository: Path) -> None:
    """`echo`, `several` (decoupled), `kinds` (an optional input per data type), `wide`, `spare`."""
    write_identity(repository, "echo", 1, 2)
    write_identity(repository, "spare")
    write_identity(repository, "several", config=identity_config("several", extra=DECOUPLED))
    write_identity(repository, "kinds", config=kinds_config())
    write_identity(repository, "wide", config=WIDE)


def kinds_config() -> str:
    """No batching; input and output `BOOL`, `UINT8` and so on, each of its name's data type."""
    tensors = "".join(
        f'input {{ name: "{kind}" data_type: {type_} dims: -1 optional: true }}\n'
        f'output {{ name: "{kind}" data_type: {type_} dims: -1 }}\n'
        for kind in KINDS
        for type_ in [f"TYPE_{'STRING' if kind == 'BYTES' else kind}"]
    )
    return f'name: "kinds"\nbackend: "identity"\n{tensors}'


def aimed(document: Schema) -> Schema:
    """A copy of the description that allows only what exists, and bodies a model nearly takes."""
    found = copy.deepcopy(document)
    for path, verbs in found["paths"].items():
        names = ["spare"] if path.startswith("/v2/repository") else INFERRING
        real = {"model": names, "version": [1, 2], "region": ["region"], "repository": ["models"]}
        for operation in verbs.values():
            operation["parameters"] = [
                {**row, "schema": {"enum": real[row["name"]]}}
                for row in operation["parameters"]
                if row["in"] == "path"
            ]
    found["components"]["schemas"].update(NEARLY)
    return found


def made_of(required: str, **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": required.split()}


def two(scalar: str) -> Schema:
    return {"type": "array", "items": {"type": scalar}, "minItems": 2, "maxItems": 2}


def tensor_in(name: str, datatype: str, shape: list[int], data: Schema) -> Schema:
    named = {"name": {"const": name}, "datatype": {"const": datatype}, "shape": {"const": shape}}
    return made_of("name datatype shape data", **named, data=data)


def infer_of(*inputs: Schema, wanted: str) -> Schema:
    """One or two of `inputs`, maybe an output with what may be asked of it."""
    output = made_of(
        "name",
        name={"const": wanted},
        parameters=made_of(
            "", binary_data={"type": "boolean"}, classification={"type": ["integer", "string"]}
        ),
    )
    return made_of(
        "inputs",
        id={"type": "string"},
        parameters={"$ref": "#/components/schemas/Parameters"},
        inputs={"type": "array", "items": {"anyOf": [*inputs]}, "minItems": 1, "maxItems": 2},
        outputs={"type": "array", "items": output, "maxItems": 1},
    )


SCALARS = {"BOOL": "boolean", "BYTES": "string", "BF16": "number"} | {
    kind: "number" if kind.startswith("FP") else "integer"
    for kind in KINDS
    if kind not in ("BOOL", "BYTES", "BF16")
}
DIMS = {"type": "array", "items": {"enum": [0, 1, 1 << 62]}, "minItems": 3, "maxItems": 3}
EMPTY = made_of(
    "name datatype shape data",
    name={"const": "INPUT0"},
    datatype={"const": "FP32"},
    shape=DIMS,
    data={"const": []},
)
NEARLY: dict[str, Schema] = {
    "InferRequest": {
        "anyOf": [
            infer_of(tensor_in("INPUT0", "FP32", [1, 2], two("number")), wanted="OUTPUT0"),
            infer_of(EMPTY, wanted="OUTPUT0"),
            infer_of(
                *(tensor_in(kind, kind, [2], two(SCALARS[kind])) for kind in KINDS), wanted="BYTES"
            ),
        ]
    },
    "GenerateRequest": made_of(
        "INPUT0", INPUT0={"type": ["number", "array", "string"]}, parameters={"type": "object"}
    ),
    "Settings": made_of(
        "",
        trace_level={"type": "array", "items": {"enum": ["OFF", "TIMESTAMPS", 1]}, "maxItems": 2},
        trace_rate={"type": ["string", "integer", "null"]},
        trace_count={"type": ["string", "integer", "null"]},
        log_verbose_level={"enum": [0, 1, -1, 1 << 40]},
        log_info={"type": ["boolean", "integer"]},
        log_format={"enum": ["default", "ISO8601", "other"]},
    ),
}


def operations(server: Server) -> list[schemathesis.APIOperation]:
    """What the server's description allows, as it serves it and aimed."""
    status, body = server.get("/openapi.json")
    assert status == 200
    document = json.loads(body)
    schemas = [schemathesis.openapi.from_dict(one) for one in (document, aimed(document))]
    for schema in schemas:
        schema.config.update(base_url=f"http://{server.http}")
    return [found.ok() for schema in schemas for found in schema.get_all_operations()]


def send_cases(server: Server, count: int, each: Callable[[int], None]) -> Counter[str]:
    """Send `count` cases, calling `each` with the number sent; what was wrong, and how often.

    Wrong is a 5xx status that the operation does not document, and any answer that calls itself a
    bug. Raises requests.Timeout when an answer takes longer than ANSWER_SECS.
    """
    wrong: Counter[str] = Counter()
    session = requests.Session()
    sent = 0

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(server))
    def run(case: Case) -> None:
        nonlocal sent
        answer = case.call(session=session, timeout=ANSWER_SECS)
        if is_wrong(case, answer.status_code, answer.content):
            asked = f"{case.operation.label} {case.body!r:.300}"
            wrong[f"{asked}: {answer.status_code} {answer.content[:200]!r}"] += 1
        sent += 1
        each(sent)

    with session:
        run()
    assert sent == count
    return wrong


def cases(server: Server) -> st.SearchStrategy[Case]:
    """Any operation, those that infer more often than the others."""
    found = operations(server)
    found += INFER_WEIGHT * [one for one in found if "Inference" in one.tags]
    return st.one_of(*(one.as_strategy(mode) for one in found for mode in GenerationMode))


def is_wrong(case: Case, status: int, content: bytes) -> bool:
    """Or says that it is a bug, in words that are not the request's: those that are generated come
    from the code as well."""
    allowed: Schema = case.operation.definition.raw["responses"]
    sent = f"{case.path_parameters!r} {case.query!r} {case.headers!r} {case.body!r}"
    is_bug = b"This is a bug" in content and "This is a bug" not in sent
    return (status >= 500 and str(status) not in allowed) or is_bug
