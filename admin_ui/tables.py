"""Lists as pages show them: sorted, filtered and cut into pages here, from the page's query. Pure.

The query's names are `q` (text to look for), `sort` ("name", or "-name" for downwards) and `page`;
a second table on a page has a prefix for its own, e.g. "tokens." .
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from admin_ui.page_context import MOST, PageContext

PAGE = 50

Row = Mapping[str, Any]
Key = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class TablePage:
    """What to show of a list, and the links that show it otherwise. `total` counts what the filter
    let through, `whole` all there is; `cut` when there is more than was looked at."""

    rows: Sequence[Any]
    total: int
    whole: int
    number: int
    pages: int
    q: str
    sort: str
    prefix: str
    at: str

    @property
    def cut(self) -> bool:
        return self.whole >= MOST

    @property
    def first(self) -> int:
        return (self.number - 1) * PAGE + 1

    @property
    def path(self) -> str:
        """The page's path."""
        return self.at.partition("?")[0]

    @property
    def other_query(self) -> list[tuple[str, str]]:
        """What of the page's query another filter keeps."""
        ours = {f"{self.prefix}{name}" for name in ("q", "page")}
        return [pair for pair in parse_qsl(self.at.partition("?")[2]) if pair[0] not in ours]

    def sorted_by(self, name: str) -> str:
        """aria-sort's value for a column."""
        return {name: "ascending", f"-{name}": "descending"}.get(self.sort, "none")

    def by(self, name: str) -> str:
        """The link that sorts by a column, the other way round when it is sorted by it already."""
        wanted = f"-{name}" if self.sort == name else name
        return with_query(self.at, {f"{self.prefix}sort": wanted, f"{self.prefix}page": ""})

    def turn(self, number: int) -> str:
        """The link to a page."""
        return with_query(self.at, {f"{self.prefix}page": str(number)})


@dataclass(frozen=True, slots=True)
class DownloadTable:
    """A table that a screen offers as `tables` in its context, by the id that the link has."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


def table(
    context: PageContext,
    rows: Sequence[Any],
    keys: Mapping[str, Key],
    usual: str,
    text: Callable[[Any], str],
    prefix: str = "",
) -> TablePage:
    """`keys`: columns that can be sorted by; `usual`: by which, when nobody says; `text`: what is
    looked through for `q`. What the query cannot mean is as if it were not there."""
    q = context.query.get(f"{prefix}q", "").strip()[:200]
    sort = context.query.get(f"{prefix}sort", usual)
    if sort.removeprefix("-") not in keys:
        sort = usual
    needle = q.casefold()
    kept = [row for row in rows if needle in text(row).casefold()] if q else list(rows)
    kept.sort(key=keys[sort.removeprefix("-")], reverse=sort.startswith("-"))
    pages = max(1, -(-len(kept) // PAGE))
    number = min(pages, _whole(context.query.get(f"{prefix}page", "1")))
    shown = kept[(number - 1) * PAGE : number * PAGE]
    return TablePage(shown, len(kept), len(rows), number, pages, q, sort, prefix, context.at)


@dataclass(frozen=True, slots=True)
class CursorPage:
    """One page of a list that may be long; `next` and `first` are links, "" for none."""

    rows: Sequence[Any]
    next: str
    first: str


async def cursor_page(
    context: PageContext, path: str, filters: Sequence[str], **names: str
) -> tuple[CursorPage, Any]:
    """A page of the API's own list, and its document. `filters`: the names in the page's query
    that are passed on, those left empty not."""
    asked = {name: context.query[name] for name in filters if context.query.get(name)}
    if context.query.get("cursor"):
        asked["cursor"] = context.query["cursor"]
    found = await context.fetch(path, {"limit": str(PAGE), **asked}, **names)
    following = with_query(context.at, {"cursor": found.next}) if found.next else ""
    first = with_query(context.at, {"cursor": ""}) if "cursor" in asked else ""
    return CursorPage(found.document["items"], following, first), found.document


def with_query(at: str, changes: Mapping[str, str]) -> str:
    """A page's address with some of its query changed; "" removes."""
    path, _, query = at.partition("?")
    asked = {**dict(parse_qsl(query)), **changes}
    kept = {name: value for name, value in asked.items() if value}
    return f"{path}?{urlencode(kept)}" if kept else path


def _whole(text: str) -> int:
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 7 else 1
