"""The OpenAPI document of the REST listener, made from `server.rest.openapi.paths`.

Served by `server.rest.openapi.pages`. Pure.
"""

from collections.abc import Sequence
from typing import Any

from control.openapi_document import (
    BodyContent,
    OpenAPIDocument,
    OperationRow,
    ResponseRow,
    Schema,
    reference,
)
from server.rest.openai_errors import OpenAIError
from server.rest.openapi.paths import LANGUAGE, BodyType, RestOperation, each_path
from server.rest.openapi.schemas import SCHEMAS

Json = dict[str, Any]


def document(name: str, version: str, more: Sequence[RestOperation] = ()) -> Json:
    """The document for a server of this name and version, which serves `more` beside KServe's."""
    rows = (*each_path(), *((one.path, one) for one in more))
    return OpenAPIDocument(
        info={
            "title": name,
            "version": version,
            "summary": "Inference over REST in Triton's dialect of the KServe v2 protocol",
        },
        operations=[_row(path, operation) for path, operation in rows],
        schemas=SCHEMAS,
        path_schemas=_PATH_SCHEMAS,
    ).write()


def _row(path: str, operation: RestOperation) -> OperationRow:
    return OperationRow(
        verb=operation.verb,
        path=path,
        tag=operation.tag,
        summary=operation.summary,
        parameters=_headers(operation),
        responses=_responses(operation),
        body=_bodies(operation.takes) if operation.takes else {},
        body_required=operation.required_body,
    )


def _responses(operation: RestOperation) -> dict[int, ResponseRow]:
    found = {200: _answer(operation)}
    found |= {status: ResponseRow(_REASONS[status]) for status in operation.bare}
    envelope = OpenAIError if operation.tag == LANGUAGE else reference("Error")
    error = {"application/json": envelope}
    for status in sorted({*_at_the_front_end(operation), *operation.errors}):
        found[status] = ResponseRow(_REASONS[status], error)
    return found


def _at_the_front_end(operation: RestOperation) -> tuple[int, ...]:
    """How a request may be refused before anybody looks at what it asks."""
    return (403,) if operation.path.startswith("/v2/health/") else (401, 403, 429)


def _headers(operation: RestOperation) -> list[Json]:
    if operation.tag not in ("Inference", LANGUAGE) or operation.verb == "GET":
        return []
    found = [*_TENSOR_HEADERS] if operation.takes == "InferRequest" else []
    return found + _TIME_HEADERS


def _bodies(body: BodyType) -> BodyContent:
    if not isinstance(body, str):
        return {"application/json": body}
    found = {"application/json": reference(body)}
    if body in ("InferRequest", "InferResponse"):
        found["application/octet-stream"] = {}
    if body == "InferRequest":  # of models that declare it
        found["image/*"] = found["text/plain"] = {}
    return found


def _answer(operation: RestOperation) -> ResponseRow:
    gives = operation.gives
    if not gives:
        return ResponseRow("Done; the body is empty.")
    media_type = _CONTENT.get(gives) if isinstance(gives, str) else None
    events = {} if operation.events is None else {"text/event-stream": operation.events}
    return ResponseRow("The answer.", {**(media_type or _bodies(gives)), **events})


_CONTENT: dict[str, dict[str, Schema]] = {
    "event-stream": {"text/event-stream": {"type": "string"}},
    "document": {"application/json": {"type": "object"}},
    "page": {"text/html": {"type": "string"}},
}
_PATH_SCHEMAS: dict[str, Schema] = {
    "version": {"type": "integer", "minimum": 1, "maximum": 10**18 - 1},
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
