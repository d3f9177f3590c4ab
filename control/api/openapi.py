"""The OpenAPI 3.1 document of the control API, made from the table and the Structs. Pure."""

import re
from datetime import datetime
from http import HTTPStatus
from typing import Any

import msgspec

from control.api.arguments import params_of
from control.api.body_fields import LARGEST, MAX_TEXT
from control.api.call import Operation, Param
from control.api.operations import OPERATIONS
from control.http_errors import STATUSES
from control.views import Page

Json = dict[str, Any]
Schema = dict[str, Any]

_ERROR: Schema = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "field", "request_id"],
            "properties": {
                "code": {
                    "enum": sorted(
                        {code for _, code in STATUSES.values()}
                        | {"internal", "method_not_allowed", "http"}
                    )
                },
                "message": {"type": "string", "description": "What happened and what would work."},
                "field": {"type": "string", "description": "The field or parameter; may be empty."},
                "request_id": {"type": "string", "description": "To be found in the log."},
            },
        }
    },
    "examples": [
        {
            "error": {
                "code": "not_found",
                "message": "there is no user 'eve'",
                "field": "",
                "request_id": "01hq3k5v7m9n2p4r6t8w",
            }
        }
    ],
}
_REFERENCE = "#/components/schemas/{name}"
_ALWAYS = (400, 421, 500, 503)
_KNOWN = (401, 403, 429)
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
    schemas = {"Error": _ERROR, **_components()}
    paths: Json = {}
    for operation in OPERATIONS:
        at = paths.setdefault(f"/api/v1{operation.path}", {})
        at[operation.verb.lower()] = _operation(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Modelyard control API",
            "version": version,
            "summary": "Users, tokens, git repositories, versions, aliases, events and audit",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": public_url or "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(each.tag for each in OPERATIONS)],
        "security": [{"token": []}, {"password": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "password": {"type": "http", "scheme": "basic"},
            },
        },
    }


def _components() -> dict[str, Schema]:
    """The schemas of all bodies, by the names of their Structs."""
    kinds = [kind for one in OPERATIONS for kind in (one.takes, answer_of(one)) if kind]
    _, found = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    for schema in found.values():
        if "description" in schema:
            schema["description"] = " ".join(schema["description"].split())
    return found


def answer_of(operation: Operation) -> Any:
    """The type of the answer's body, None for an empty one or one that is not JSON."""
    return Page[operation.list_of] if operation.list_of else operation.gives  # type: ignore[name-defined]


def _reference(kind: Any) -> Schema:
    (found,), _ = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
    return found


def _operation(operation: Operation, schemas: dict[str, Schema]) -> Json:
    found: Json = {
        "tags": [operation.tag],
        "summary": operation.summary,
        "operationId": _identifier(operation),
        "description": _takes_text(operation),
        "parameters": _parameters(operation),
        "responses": {str(operation.status): _answer(operation)},
    }
    if operation.access is None:
        found["security"] = []
    if operation.verb == "GET":
        found["responses"]["304"] = {"description": "You have this already (If-None-Match)."}
    for status in _statuses(operation):
        content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
        found["responses"][str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": content,
        }
    if operation.takes is not None:
        name = operation.takes.__name__
        schema = _reference(operation.takes)
        content = {"application/json": {"schema": schema, **_example(schemas[name])}}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _identifier(operation: Operation) -> str:
    return "_".join([operation.verb.lower(), *re.findall(r"\w+", operation.path)])


def _takes_text(operation: Operation) -> str:
    """What it takes to be let in, in words."""
    access = operation.access
    if access is None:
        return "Open to everybody."
    if access.action is None:
        return "For everybody who is known, about what is their own; for admins about all."
    about = f" on the {access.about}" if access.about else ""
    return f"Takes the action {access.action}{about}."


def _parameters(operation: Operation) -> list[Json]:
    found: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": _path_schema(name)}
        for name in re.findall(r"\{(\w+)\}", operation.path)
    ]
    found += [_query_parameter(param) for param in params_of(operation)]
    if operation.if_match:
        found.append(_IF_MATCH)
    return found


def _path_schema(name: str) -> Schema:
    if name == "version":
        return {"type": "integer", "minimum": 1, "maximum": LARGEST}
    return {"type": "string", "pattern": "^[^/]+$", "maxLength": MAX_TEXT}


def _query_parameter(param: Param) -> Json:
    return {
        "name": param.name,
        "in": "query",
        "description": param.meaning,
        "schema": {**_PARAM_TYPES[param.kind], **param.schema},
    }


def _answer(operation: Operation) -> Json:
    if operation.status == 204:
        return {"description": "Done; the body is empty."}
    kind = answer_of(operation)
    schema = _reference(kind) if kind else {"type": "string", "format": "binary"}
    content = {operation.media_type: {"schema": schema}}
    if operation.also:
        content[operation.also] = {"schema": {"type": "string"}}
    return {"description": "The answer.", "content": content}


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


def _example(body: Schema) -> Json:
    """The first example of each field that has one."""
    found = {
        name: one["examples"][0] for name, one in body["properties"].items() if "examples" in one
    }
    return {"example": found} if found else {}
