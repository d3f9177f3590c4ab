"""Strangers' text (commits, names) made safe for a terminal, a log and a page. Pure."""

import re

_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles, links
    r"|[\x1b\x9b][\[()#;?]*[0-9;:]*[0-~]?"  # CSI and two-character escapes
)
_LINE_BREAKS = re.compile(r"[\t\n\r\v\f\x85\u2028\u2029]+")
_MOST_CHARACTERS = 500


def plain_text(text: str | bytes, most_characters: int = _MOST_CHARACTERS) -> str:
    """One line of `text` without escape sequences, control or direction-changing characters.

    Bytes are read as UTF-8; what is not becomes U+FFFD. Longer text is cut and ends in "…".
    """
    if isinstance(text, bytes):
        text = text[: 8 * most_characters].decode(errors="replace")
    else:
        text = text[: 8 * most_characters].encode(errors="surrogateescape").decode(errors="replace")
    spaced = _LINE_BREAKS.sub(" ", _ESCAPES.sub("", text))
    kept = "".join(c for c in spaced if c.isprintable()).strip()
    if len(kept) <= most_characters:
        return kept
    return kept[: most_characters - 1] + "…"
