"""Text of strangers in the form that both databases can keep."""

from typing import Any
from urllib.parse import quote

import msgspec


def stored(text: str, most_characters: int) -> str:
    """`text` without NUL and lone surrogates; what is longer is cut and ends in "…"."""
    kept = text.replace("\0", "").encode(errors="replace").decode()
    if len(kept) <= most_characters:
        return kept
    return kept[: most_characters - 1] + "…"


def stored_json(value: Any) -> Any:
    """Structs as a JSON column gives them back: objects, lists and texts."""
    return msgspec.json.decode(msgspec.json.encode(value))


def link(template: str, **names: object) -> str:
    """ "/models/{model}" with its names filled in, each as one segment of a path."""
    return template.format(**{key: _segment(str(name)) for key, name in names.items()})


def _segment(name: str) -> str:
    """A name that ends in ".json" is not to be taken for the twin of a shorter one."""
    quoted = quote(name, safe="@:")
    return quoted[:-5] + "%2Ejson" if quoted.endswith(".json") else quoted
