"""One parameter of a JSON request, read before it is known which model will answer it.

For routes whose unit is a parameter: the body is parsed once more afterwards, by its codec, which
also says what is wrong with it.
"""

from typing import Any

from server.codec.json_text import load_document
from server.errors import ServingError


def parameter_in(body: bytes, header_length: int | None, max_depth: int, name: str) -> Any:
    """Of an infer body, whose first `header_length` bytes are JSON (None: all of it); None where
    there is no such parameter, or no such JSON."""
    if header_length == 0:
        return None
    text = body if header_length is None else memoryview(body)[:header_length]
    return _members(_document(text, max_depth).get("parameters")).get(name)


def parameter_among(body: bytes, max_depth: int, name: str) -> Any:
    """Of a generate body, where parameters stand beside the inputs, or below `parameters`."""
    document = _document(body, max_depth)
    return document.get(name, _members(document.get("parameters")).get(name))


def _document(text: bytes | memoryview, max_depth: int) -> dict[str, Any]:
    try:
        return load_document(text, max_depth)
    except ServingError:
        return {}


def _members(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}
