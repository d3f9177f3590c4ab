"""Text of strangers in the form that both databases can keep."""

from typing import Any

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
