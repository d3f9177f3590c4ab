"""The templates: escaping is on for everything, and text from strangers cannot steer a display."""

import shlex
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from admin_ui import event_text, text

HERE = Path(__file__).resolve().parent
STATIC = HERE / "static"

_MACROS = {
    "parts": "parts.html",
    "charts": "traffic.html",
    "rollback": "rollback.html",
    "graph": "steps.html",
    "reports": "reports.html",
}
"""What every block may use, also one that is rendered alone. In the order in which they use each
other."""


def render(name: str, context: dict[str, Any]) -> str:
    """A whole page."""
    return environment().get_template(name).render(context)


def render_block(name: str, block: str, context: dict[str, Any]) -> str:
    """One block of a page alone: what its template imports outside of the block is not there."""
    template = environment().get_template(name)
    return "".join(template.blocks[block](template.new_context(context)))


@cache
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "age": text.age,
        "clock": text.clock,
        "count": text.count,
        "duration": text.duration,
        "moment": text.moment,
        "number": text.number,
        "measured": text.measured,
        "job_type": text.job_type,
        "plain": text.plain,
        "shell": shlex.quote,
        "short": text.short,
        "signed": text.signed,
        "size": text.size,
        "spoken": text.spoken,
        "who": text.who,
        "words": event_text.words,
    }
    made.globals |= {"link": text.link, "asset": asset}
    for name, file in _MACROS.items():
        made.globals[name] = made.get_template(file).module
    return made


@cache
def asset(name: str) -> str:
    """The path of a static file, new when its content is."""
    return f"/static/{name}?v={sha256((STATIC / name).read_bytes()).hexdigest()[:12]}"


def _finalize(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, Markup):
        return value
    return text.harmless(value) if isinstance(value, str) else value
