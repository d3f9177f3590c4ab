"""The OpenAPI 3.1 document of the control API, made from the table and the Structs. Pure."""

import re
from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any

from control.api.body_fields import LARGEST, MAX_TEXT
from control.api.call import Operation, Param
from control.api.operations import OPERATIONS
from control.http_errors import STATUSES
from control.openapi_document import (
    Json,
    OpenAPIDocument,
    OperationRow,
    ResponseRow,
    Schema,
)
from control.views import ErrorDetail, ErrorDocument, Page

_ERROR_CODES = sorted(
    {code for _, code in STATUSES.values()} | {"internal", "method_not_allowed", "http"}
)
_ALWAYS = (400, 421, 500, 503)
_KNOWN = (401, 403, 429)
_JSON = "application/json"
_BINARY: Schema = {"type": "string", "format": "binary"}
_PATH_TYPES: dict[str, Schema] = {
    "version": {"type": "integer", "minimum": 1, "maximum": LARGEST},
}
_PARAM_TYPES: dict[type, Schema] = {
    str: {"type": "string", "maxLength": MAX_TEXT},
    bool: {"type": "boolean"},
    int: {"type": "integer", "minimum": 0, "maximum": LARGEST},
    datetime: {"type": "string", "format": "date-time"},
}
_IF_MATCH: Json = {
    "name": "If-Match",
    "in": "header",
    "description": "The ETag this change was made against; 412 if it has changed since.",
    "schema": {"type": "string", "pattern": r'^(\*|"[0-9]{1,18}\.[0-9a-f]{16}")$'},
}


def document(version: str, public_url: str = "") -> Json:
    """The whole document."""
    found = OpenAPIDocument(
        info={
            "title": "Modelyard control API",
            "version": version,
            "summary": "Users, tokens, git repositories, versions, aliases, events and audit",
        },
        operations=[_row(operation) for operation in OPERATIONS],
        server_url=public_url or "/",
        prefix="/api/v1",
        path_schemas=_path_schemas(),
        more={"security": [{"token": []}, {"password": []}]},
        components={
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "password": {"type": "http", "scheme": "basic"},
            },
        },
    ).write()
    schemas = found["components"]["schemas"]
    schemas[ErrorDetail.__name__]["properties"]["code"]["enum"] = _ERROR_CODES
    for schema in schemas.values():
        _describe(schema)
    return found


def _row(operation: Operation) -> OperationRow:
    more: Json = {"description": _takes_text(operation)}
    if operation.access is None:
        more["security"] = []
    parameters = [_query_parameter(param) for param in operation.params]
    return OperationRow(
        verb=operation.verb,
        path=operation.path,
        tag=operation.tag,
        summary=operation.summary,
        responses=_responses(operation),
        body={_JSON: operation.takes} if operation.takes else {},
        parameters=[*parameters, _IF_MATCH] if operation.if_match else parameters,
        more=more,
    )


def _takes_text(operation: Operation) -> str:
    """What it takes to be let in, in words."""
    access = operation.access
    if access is None:
        return "Open to everybody."
    if access.action is None:
        return "For everybody who is known, about what is their own; for admins about all."
    about = f" on the {access.about}" if access.about else ""
    return f"Takes the action {access.action}{about}."


def _path_schemas() -> Mapping[str, Schema]:
    names = {name for one in OPERATIONS for name in re.findall(r"\{(\w+)\}", one.path)}
    plain = {"type": "string", "pattern": "^[^/]+$", "maxLength": MAX_TEXT}
    return dict.fromkeys(names, plain) | _PATH_TYPES


def _query_parameter(param: Param) -> Json:
    return {
        "name": param.name,
        "in": "query",
        "description": param.meaning,
        "schema": {**_PARAM_TYPES[param.kind], **param.schema},
    }


def _responses(operation: Operation) -> Mapping[int, ResponseRow]:
    found = {operation.status: _answer(operation)}
    if operation.verb == "GET":
        found[304] = ResponseRow("You have this already (If-None-Match).")
    wrong = {_JSON: ErrorDocument}
    return found | {
        status: ResponseRow(HTTPStatus(status).phrase, wrong) for status in _statuses(operation)
    }


def _answer(operation: Operation) -> ResponseRow:
    if operation.status == 204:
        return ResponseRow("Done; the body is empty.")
    content: dict[str, Any] = {operation.media_type: answer_of(operation) or _BINARY}
    if operation.also:
        content[operation.also] = {"type": "string"}
    return ResponseRow("The answer.", content)


def answer_of(operation: Operation) -> Any:
    """The type of the answer's body, None for an empty one or one that is not JSON."""
    listed: Any = operation.list_of
    return operation.gives if listed is None else Page[listed]


def _statuses(operation: Operation) -> list[int]:
    found = {*_ALWAYS}
    if operation.access is not None:
        found |= {*_KNOWN}
    if operation.path.count("{") or operation.query or operation.takes:
        found |= {404}
    if operation.list_of or operation.takes or operation.path.count("{"):
        found |= {422}
    if operation.verb not in ("GET", "HEAD"):
        found |= {403, 409, 412, 413, 429}
    if operation.takes:
        found |= {415}
    return sorted(found)


def _describe(schema: Schema) -> None:
    """A docstring in one line, and as an example the first one of each field that has one."""
    if "description" in schema:
        schema["description"] = " ".join(schema["description"].split())
    fields = schema.get("properties", {}).items()
    if found := {name: one["examples"][0] for name, one in fields if "examples" in one}:
        schema["examples"] = [found]
