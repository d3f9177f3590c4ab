"""The OpenAPI 3.1 document of the REST listener, made from `server.rest.openapi.paths`.

Served by `server.rest.openapi.pages`. Pure.
"""

import re
from typing import Any

from server.rest.openapi.language import LANGUAGE, LANGUAGE_OPERATIONS, LANGUAGE_SCHEMAS
from server.rest.openapi.paths import OPERATIONS, RestOperation, each_path
from server.rest.openapi.schemas import SCHEMAS, Schema, ref

Json = dict[str, Any]

ROWS = (*OPERATIONS, *LANGUAGE_OPERATIONS)


def document(name: str, version: str) -> Json:
    """The document for a server of this name and version."""
    paths: Json = {}
    for path, operation in (*each_path(), *((one.path, one) for one in LANGUAGE_OPERATIONS)):
        paths.setdefault(path, {})[operation.verb.lower()] = _operation(path, operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": name,
            "version": version,
            "summary": "Inference over REST in Triton's dialect of the KServe v2 protocol",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(row.tag for row in ROWS)],
        "paths": paths,
        "components": {"schemas": SCHEMAS | LANGUAGE_SCHEMAS},
    }


def _operation(path: str, operation: RestOperation) -> Json:
    found: Json = {
        "tags": [operation.tag],
        "summary": operation.summary,
        "operationId": _identifier(operation.verb, path),
        "parameters": [*_path_parameters(path), *_headers(operation)],
        "responses": {"200": _answer(operation.gives)},
    }
    for status in operation.bare:
        found["responses"][str(status)] = {"description": _REASONS[status]}
    for status in sorted({*_at_the_door(operation), *operation.errors}):
        error = ref("OpenAIError" if operation.tag == LANGUAGE else "Error")
        content = {"application/json": {"schema": error}}
        found["responses"][str(status)] = {"description": _REASONS[status], "content": content}
    if operation.takes:
        content = {kind: {"schema": schema} for kind, schema in _bodies(operation.takes).items()}
        found["requestBody"] = {"content": content, "required": operation.required_body}
    return found


def _at_the_door(operation: RestOperation) -> tuple[int, ...]:
    """How a request may be refused before anybody looks at what it asks."""
    return (403,) if operation.path.startswith("/v2/health/") else (401, 403, 429)


def _identifier(verb: str, path: str) -> str:
    return "_".join([verb.lower(), *re.findall(r"\w+", path)])


def _path_parameters(path: str) -> list[Json]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _PATH_SCHEMAS[name]}
        for name in re.findall(r"\{(\w+)\}", path)
    ]


def _headers(operation: RestOperation) -> list[Json]:
    if operation.tag not in ("Inference", LANGUAGE) or operation.verb == "GET":
        return []
    found = [*_TENSOR_HEADERS] if operation.takes == "InferRequest" else []
    return found + _TIME_HEADERS


def _bodies(schema: str) -> dict[str, Schema]:
    found = {"application/json": ref(schema)}
    if schema in ("InferRequest", "InferResponse"):
        found["application/octet-stream"] = {}
    return found


def _answer(gives: str) -> Json:
    if not gives:
        return {"description": "Done; the body is empty."}
    content = _CONTENT.get(gives) or _bodies(gives)
    return {
        "description": "The answer.",
        "content": {kind: {"schema": schema} for kind, schema in content.items()},
    }


_CONTENT: dict[str, dict[str, Schema]] = {
    "event-stream": {"text/event-stream": {"type": "string"}},
    "document": {"application/json": {"type": "object"}},
    "page": {"text/html": {"type": "string"}},
}
_PATH_SCHEMAS: dict[str, Schema] = {
    "model": {"type": "string", "pattern": "^[^/]+$"},
    "version": {"type": "integer", "minimum": 1, "maximum": 10**18 - 1},
    "repository": {"type": "string", "pattern": "^[^/]+$"},
    "region": {"type": "string", "pattern": "^[^/]+$"},
}
_TENSOR_HEADERS: list[Json] = [
    {
        "name": "Inference-Header-Content-Length",
        "in": "header",
        "description": "Bytes of JSON at the beginning of the body; binary tensors follow. "
        "Without it all of the body is JSON; 0 if none is.",
        "schema": {"type": "integer", "minimum": 0},
    }
]
_TIME_HEADERS: list[Json] = [
    {
        "name": "X-Envoy-Expected-Rq-Timeout-Ms",
        "in": "header",
        "description": "Milliseconds the client will wait; nobody computes for it any longer.",
        "schema": {"type": "integer", "minimum": 0},
    }
]
_REASONS = {
    400: "What was asked for is wrong, or not the case.",
    401: "A token is needed, or the one shown is unknown, revoked or expired.",
    403: "Restricted: the error names the header this API requires, or the scope a token lacks.",
    404: "No such model, version or thing.",
    429: "The token asks too often; Retry-After says when to retry, in seconds.",
    500: "A JSON value is of the wrong type, or the model failed.",
    501: "Understood and not offered.",
    503: "Not now: not ready, a full queue, or a deadline that passed.",
}
