"""An OpenAPI 3.1 document, made from a table of operations and the types of their bodies. Pure.

The gateway's REST and the control API each have a table; what a body may be is said by its Struct.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

Json = dict[str, Any]
Schema = dict[str, Any]
BodyContent = Mapping[str, Any]
"""Media type → a type that msgspec decodes, several of which any may be there, or the schema itself
where no type says it."""

_REFERENCE = "#/components/schemas/{name}"
_NAME: Schema = {"type": "string", "pattern": "^[^/]+$"}


@dataclass(frozen=True, slots=True)
class ResponseRow:
    """A response; without `content` its body is empty."""

    description: str
    content: BodyContent = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRow:
    """One verb on one path.

    `parameters`: of the query and the head, as the document has them; those of the path are found
    in it. `body`: empty where none is read. `more`: members of the operation that stand for
    themselves, such as `description` and `security`.
    """

    verb: str
    path: str
    tag: str
    summary: str
    responses: Mapping[int, ResponseRow]
    body: BodyContent = field(default_factory=dict)
    body_required: bool = True
    parameters: Sequence[Json] = ()
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAPIDocument:
    """The head of a document and what its operations share.

    `prefix`: of every path. `schemas`: components that no type stands for, by name.
    `path_schemas`: of path parameters that are not just a name. `more`: members of the document;
    `components`: of its components.
    """

    info: Mapping[str, Any]
    operations: Sequence[OperationRow]
    server_url: str = "/"
    prefix: str = ""
    schemas: Mapping[str, Schema] = field(default_factory=dict)
    path_schemas: Mapping[str, Schema] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    components: Mapping[str, Any] = field(default_factory=dict)

    def write(self) -> Json:
        """The whole document."""
        schemas, components = self._schemas()
        paths: Json = {}
        for row in self.operations:
            paths.setdefault(self.prefix + row.path, {})[row.verb.lower()] = self._operation(
                row, schemas
            )
        return {
            "openapi": "3.1.0",
            "info": {**self.info, "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
            "servers": [{"url": self.server_url}],
            "tags": [{"name": tag} for tag in dict.fromkeys(row.tag for row in self.operations)],
            **self.more,
            "paths": paths,
            "components": {"schemas": {**self.schemas, **components}, **self.components},
        }

    def _schemas(self) -> tuple[Mapping[Any, Schema], Mapping[str, Schema]]:
        """The schema of each type in the table, and the components they refer to."""
        contents = [
            content
            for row in self.operations
            for content in (row.body, *(one.content for one in row.responses.values()))
        ]
        kinds = [
            *dict.fromkeys(
                kind for content in contents for value in content.values() for kind in _kinds(value)
            )
        ]
        found, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
        schemas = dict(zip(kinds, found, strict=True))
        return schemas, {name: _in_one_line(one) for name, one in components.items()}

    def _operation(self, row: OperationRow, schemas: Mapping[Any, Schema]) -> Json:
        found: Json = {
            "tags": [row.tag],
            "summary": row.summary,
            "operationId": _identifier(row.verb, row.path),
            **row.more,
            "parameters": [*self._path_parameters(row.path), *row.parameters],
            "responses": {
                str(status): {"description": one.description, **_content(one.content, schemas)}
                for status, one in row.responses.items()
            },
        }
        if row.body:
            found["requestBody"] = {**_content(row.body, schemas), "required": row.body_required}
        return found

    def _path_parameters(self, path: str) -> list[Json]:
        return [
            {
                "name": name,
                "in": "path",
                "required": True,
                "schema": self.path_schemas.get(name, _NAME),
            }
            for name in re.findall(r"\{(\w+)\}", path)
        ]


def reference(name: str) -> Schema:
    """To the component of this name."""
    return {"$ref": _REFERENCE.format(name=name)}


def _identifier(verb: str, path: str) -> str:
    return "_".join([verb.lower(), *re.findall(r"\w+", path)])


def _content(content: BodyContent, schemas: Mapping[Any, Schema]) -> Json:
    if not content:
        return {}
    return {
        "content": {
            media: {"schema": value if isinstance(value, dict) else _schema(value, schemas)}
            for media, value in content.items()
        }
    }


def _schema(value: Any, schemas: Mapping[Any, Schema]) -> Schema:
    found = [schemas[kind] for kind in _kinds(value)]
    return {"anyOf": found} if len(found) > 1 else found[0]


def _kinds(value: Any) -> tuple[Any, ...]:
    """The types that a body may be of."""
    if isinstance(value, dict):
        return ()
    return value if isinstance(value, tuple) else (value,)


def _in_one_line(schema: Schema) -> Schema:
    """With its description, a docstring, freed of line breaks and indents."""
    if "description" not in schema:
        return schema
    return {**schema, "description": " ".join(schema["description"].split())}
