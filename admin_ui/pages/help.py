"""The documentation of this version, as pages of the console: /help and /help/PAGE."""

import re
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from admin_ui.page_context import PageContext
from admin_ui.screens import FormAction, Screen, ScreenContent
from admin_ui.services import ControlApiError
from admin_ui.text import link

PATH = "/help/{page}"
_FOLDERS = (
    Path(__file__).resolve().parents[2] / "docs",  # a checkout
    Path(sys.prefix) / "share" / "modelyard" / "docs",  # an installed wheel
)
_OURS = "rollouts.md"
"""Beside an installed wheel may lie the documents of another package."""
_TUTORIAL = "tutorials."


class HelpPage(NamedTuple):
    """`name`: as the address has it; "tutorials.pytorch" is tutorials/pytorch.md."""

    name: str
    title: str
    to: str


async def load_all(context: PageContext) -> ScreenContent:
    pages = help_pages()
    twin = {"items": [one._asdict() for one in pages]}
    tutorials = [one for one in pages if one.name.startswith(_TUTORIAL)]
    return ScreenContent(
        twin, tutorials=tutorials, pages=[one for one in pages if one not in tutorials]
    )


async def load(context: PageContext) -> ScreenContent:
    name = context.path["page"]
    found = next((one for one in help_pages() if one.name == name), None)
    if found is None:
        raise ControlApiError(404, "not_found", f"there is no page '{name[:80]}' in the docs")
    return ScreenContent(found._asdict(), title=found.title, text=rendered(name))


@cache
def help_pages() -> tuple[HelpPage, ...]:
    """All pages, by their titles; none where the docs were not installed."""
    folder = next((one for one in _FOLDERS if (one / _OURS).is_file()), None)
    files = [] if folder is None else [*folder.glob("*.md"), *folder.glob("tutorials/*.md")]
    names = {_name(path): path for path in files}
    pages = [
        HelpPage(name, _title(path.read_text(encoding="utf-8")) or name, link(PATH, page=name))
        for name, path in names.items()
    ]
    return tuple(sorted(pages, key=lambda one: one.title.casefold()))


def _name(path: Path) -> str:
    return (_TUTORIAL if path.parent.name == "tutorials" else "") + path.stem


def _title(text: str) -> str:
    first = re.search(r"^# (.+)$", text, re.MULTILINE)
    return first[1].replace("`", "").strip() if first else ""


@cache
def rendered(name: str) -> Markup:
    """A page's text as HTML, without its title."""
    folder = next(one for one in _FOLDERS if (one / _OURS).is_file())
    text = (folder / f"{name.replace('.', '/', 1)}.md").read_text(encoding="utf-8")
    return html_of(text, in_folder=name.startswith(_TUTORIAL))


def html_of(text: str, in_folder: bool = False) -> Markup:
    """Markdown as HTML: none of its own, links to other pages as ours, headings with ids. Pure."""
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(re.sub(r"^# .+\n", "", text, count=1, flags=re.MULTILINE))
    for number, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", _anchor(tokens[number + 1].content))
        if token.type in ("th_open", "td_open"):
            token.attrs.pop("style", None)  # the CSP takes none
        for child in token.children or ():
            _make_ours(child, in_folder)
    return Markup(reader.renderer.render(tokens, reader.options, {}))


def _make_ours(token: Token, in_folder: bool) -> None:
    if token.type == "image":
        token.type, token.content = "text", token.content or "picture"
    if token.type != "link_open":
        return
    to = str(token.attrGet("href") or "")
    if re.match(r"https?://|#|mailto:", to):
        return
    page, _, anchor = to.partition("#")
    ours = _page_of(page, in_folder)
    if ours:
        token.attrSet("href", link(PATH, page=ours) + (f"#{anchor}" if anchor else ""))
    else:
        token.attrs.pop("href", None)  # a file of the source code


def _page_of(path: str, in_folder: bool) -> str:
    """The name of the page that a relative link leads to, "" for what is none."""
    if not path.endswith(".md"):
        return ""
    parts = (["tutorials"] if in_folder else []) + path.removesuffix(".md").split("/")
    kept: list[str] = []
    for part in parts:
        if part == ".." and not kept:
            return ""
        if part == "..":
            kept.pop()
        elif part != ".":
            kept.append(part)
    return ".".join(kept)


def _anchor(text: str) -> str:
    """As MkDocs and GitHub name a heading."""
    return re.sub(r"[^\w\- ]", "", text.replace("`", "")).strip().lower().replace(" ", "-")


SCREENS = (
    Screen(path="/help", title="Docs", menu="Docs", template="help.html", load=load_all),
    Screen(path=PATH, title="Docs", template="help_page.html", load=load, under="/help"),
)
ACTS: tuple[FormAction, ...] = ()
