"""Values as people read them: sizes, counts, moments, and strangers' text made harmless. Pure."""

import json
import re
from datetime import UTC, datetime
from urllib.parse import urlsplit

from control.text import link as link

_ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)?"  # titles, links, strings
    r"|\x1b[ -/]*[0-~]"
)
_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
)
_SECONDS = re.compile(r"\b(\d{2,8}) s\b")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_AGES = ((86400, "d"), (3600, "h"), (60, "min"))


def harmless(text: str) -> str:
    """`text` without terminal sequences; what else steers a display is shown by its number."""
    if text.isascii() and text.isprintable():
        return text  # nearly all there is
    return _STEERING.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", _ANSI.sub("", text))


def size(count: float) -> str:
    """1536 → "1.5 KiB"."""
    for unit in _UNITS:
        if abs(count) < 1024 or unit == _UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def count(number: float, one: str, many: str = "") -> str:
    """(2, "model") → "2 models"."""
    return f"{number:,g} {one if number == 1 else many or one + 's'}"


def number(value: float) -> str:
    """Four digits of it, without zeros that say nothing: 10.0 → "10", 1234.56 → "1,235"."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def measured(value: float) -> str:
    """Three digits of what was measured, the whole number from 100 on: 23.09 → "23.1"."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def signed(value: float) -> str:
    """A difference that was measured: 1.5 → "+1.5"."""
    return f"+{measured(value)}" if value > 0 else measured(value)


def plain(value: object) -> str:
    """Facts of a change as people and programs both read them: texts as they are, JSON else."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def duration(seconds: float) -> str:
    """90 → "1 min 30 s", 0.01 → "10 ms"; the two largest units, what is less than one left out."""
    if 0 < seconds < 1:
        return f"{number(seconds * 1000)} ms"
    whole, parts = round(seconds), []
    if whole < 60:
        return f"{number(seconds)} s"
    for length, unit in (*_AGES, (1, "s")):
        count, whole = divmod(whole, length)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def spoken(sentence: str) -> str:
    """A sentence with its seconds as people say them: "waits for 3562 s" → "59 min 22 s"."""
    return _SECONDS.sub(lambda found: duration(float(found[1])), sentence)


def moment(text: str) -> str:
    """An RFC 3339 moment to the second, with its zone."""
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def clock(seconds: float) -> str:
    """Seconds since the epoch as the time of day, with its zone."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S UTC")


def age(text: str, now: datetime) -> str:
    """How long ago: "3 min ago"; "in 2 d" for what is to come."""
    seconds = (now - datetime.fromisoformat(text)).total_seconds()
    form = "in {}" if seconds < 0 else "{} ago"
    for length, unit in _AGES:
        if abs(seconds) >= length:
            return form.format(f"{abs(seconds) // length:.0f} {unit}")
    return form.format(f"{abs(seconds):.0f} s")


def job_type(name: str) -> str:
    """ "quantise_llm" → "quantise LLM"."""
    return name.replace("_", " ").replace("llm", "LLM")


def who(principal: str) -> str:
    """ "user:ada/token:01m8…" → "ada (token)"; whatever is no user stays as it is."""
    name, slash, _ = principal.partition("/token:")
    return name.removeprefix("user:") + (" (token)" if slash else "")


def short(commit: str) -> str:
    """The first characters of a commit or digest."""
    return commit[:10]


def local(target: str) -> str:
    """Where to go after logging in: a path of ours, the overview for anything else."""
    parts = urlsplit(target)
    ours = target.startswith("/") and not target.startswith(("//", "/\\"))
    if not ours or parts.scheme or parts.netloc or not target.isprintable():
        return "/"
    return target
