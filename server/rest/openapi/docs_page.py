"""The OpenAPI document as a page to read: plain HTML, light or dark, wide or narrow. Pure."""

from collections.abc import Iterator
from html import escape
from http import HTTPStatus
from typing import Any

import orjson

from server.rest.openapi.docs_style import STYLE

__all__ = ["STYLE", "page"]

Json = dict[str, Any]


def page(document: Json) -> str:
    """The whole page. `document` is that of `server.rest.openapi.build`."""
    info = document["info"]
    title = escape(info["title"])
    tags = [tag["name"] for tag in document["tags"]]
    links = "".join(f'<a href="#{_anchor(tag)}">{escape(tag)}</a>' for tag in [*tags, "Schemas"])
    sections = "".join(_section(tag, document) for tag in tags)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}: REST</title><style>{STYLE}</style></head><body>"
        f'<header><h1>{title} <span class="version">{escape(info["version"])}</span></h1>'
        f"<p>{escape(info['summary'])}. Errors are <code>{{&quot;error&quot;: &quot;…&quot;}}"
        '</code>. <a href="/openapi.json">openapi.json</a></p>'
        f"<nav>{links}</nav></header><main>{sections}{_schemas(document)}</main></body></html>"
    )


def _section(tag: str, document: Json) -> str:
    rows = "".join(
        _operation(verb, path, operation)
        for path, verbs in document["paths"].items()
        for verb, operation in verbs.items()
        if tag in operation["tags"]
    )
    return f'<section id="{_anchor(tag)}"><h2>{escape(tag)}</h2>{rows}</section>'


def _operation(verb: str, path: str, operation: Json) -> str:
    facts = "".join(f"<dt>{term}</dt><dd>{text}</dd>" for term, text in _facts(operation))
    return (
        f'<details id="{operation["operationId"]}"><summary>'
        f'<span class="verb {verb}">{verb.upper()}</span><code class="path">{_path(path)}</code>'
        f'<span class="what">{escape(operation["summary"])}</span></summary><dl>{facts}</dl>'
        "</details>"
    )


def _path(path: str) -> str:
    """A path that may break behind a slash."""
    return escape(path).replace("/", "/<wbr>")


def _facts(operation: Json) -> Iterator[tuple[str, str]]:
    for parameter in operation["parameters"]:
        note = escape(parameter.get("description", parameter["schema"]["type"]))
        yield f"<code>{escape(parameter['name'])}</code>", f"{parameter['in']}: {note}"
    if "requestBody" in operation:
        yield "takes", _content(operation["requestBody"]["content"])
    for status, answer in operation["responses"].items():
        phrase = HTTPStatus(int(status)).phrase
        body = _content(answer["content"]) if status == "200" and "content" in answer else ""
        yield f"{status} {phrase}", body or escape(answer["description"])


def _content(content: Json) -> str:
    return ", ".join(
        f"<code>{escape(kind)}</code>{_link(about['schema'])}" for kind, about in content.items()
    )


def _link(schema: Json) -> str:
    name = schema.get("$ref", "").rpartition("/")[2]
    return f' <a href="#schema-{escape(name)}">{escape(name)}</a>' if name else ""


def _schemas(document: Json) -> str:
    rows = "".join(
        f'<details id="schema-{escape(name)}"><summary><code class="path">{escape(name)}</code>'
        f'<span class="what">{escape(schema.get("description", ""))}</span></summary>'
        f"<pre>{escape(orjson.dumps(schema, option=orjson.OPT_INDENT_2).decode())}</pre></details>"
        for name, schema in document["components"]["schemas"].items()
    )
    return f'<section id="schemas"><h2>Schemas</h2>{rows}</section>'


def _anchor(name: str) -> str:
    return name.lower().replace(" ", "-")
