"""What MkDocs is told of this repository: README is the site's first page, and the changelog, the
decisions and the examples' pages are pages too; links between them are followed as they stand in
the repository, and as they stand there they are valid on a git host.
"""

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
ADDED = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "DECISIONS.md": "decisions.md"}
"""Pages outside of docs/, by where they lie in the repository, and the page of the site each is."""

_NOT_SEARCHED = (ADDED["CHANGELOG.md"], ADDED["DECISIONS.md"])
"""Records of what was: they would come before the pages that say what is."""

_LINK = re.compile(r"(!?\[(?:[^\]\\]|\\.)*\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
_BLOCK = re.compile(r"^[ \t]*(`{3,}|~{3,}).*?^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL)
_NEED = re.compile(r'^([ \t]*`{3,}\w+) needs="(\w+)"', re.MULTILINE)
_NEEDS = {
    "container": "needs a container engine",
    "systemd": "needs systemd",
    "gpu": "needs an NVIDIA GPU",
    "internet": "needs the internet",
}


def added_pages() -> dict[str, str]:
    """Every page outside of docs/ → its page of the site."""
    examples = sorted(ROOT.glob("examples/*/README.md"))
    return ADDED | {
        str(page.relative_to(ROOT)): f"examples/{page.parent.name}.md" for page in examples
    }


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put every page of a folder that the navigation does not name where it says `folder/*`."""
    named = set(_named(config.nav or []))
    pages = [str(page.relative_to(ROOT / "docs")) for page in sorted((ROOT / "docs").rglob("*.md"))]
    config.nav = _expanded(config.nav, [*pages, *added_pages().values()], named)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside of docs/."""
    for source, page in added_pages().items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to where their pages are in the site, and say what a code block needs."""
    pages = added_pages()
    here = page.file.src_uri
    if here in _NOT_SEARCHED:
        page.meta["search"] = {"exclude": True}
    source = next((path for path, at in pages.items() if at == here), f"docs/{here}")

    def led(found: re.Match[str]) -> str:
        target = found[2]
        if "://" in target or target.startswith("mailto:"):
            return found[0]
        wanted = normpath(str(PurePosixPath(source).parent / target))
        at = pages.get(wanted) or wanted.removeprefix("docs/")
        if at == wanted and not (ROOT / "docs" / at).exists():
            return _plain(found[1], wanted)
        return f"{found[1]}{relpath(at, str(PurePosixPath(here).parent))}{found[3]}"

    outside = _outside_of_blocks(markdown, led)
    return _NEED.sub(lambda found: f'{found[1]} title="{_NEEDS[found[2]]}"', outside)


def _plain(opening: str, wanted: str) -> str:
    """The words of a link to a file that is no page, such as a source file."""
    if not (ROOT / wanted).exists():
        return f"{opening}{wanted})"  # MkDocs warns of it
    return opening.removesuffix("](").removeprefix("[")


def _outside_of_blocks(markdown: str, led: Any) -> str:
    """Links are followed in text, not in code."""
    parts, end = [], 0
    for block in _BLOCK.finditer(markdown):
        parts += [_LINK.sub(led, markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, _LINK.sub(led, markdown[end:])])


def _named(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [name for part in parts for name in _named(part)]


def _expanded(entry: Any, pages: list[str], named: set[str]) -> Any:
    if isinstance(entry, dict):
        return {name: _expanded(part, pages, named) for name, part in entry.items()}
    if not isinstance(entry, list):
        return entry
    found: list[Any] = []
    for part in entry:
        if isinstance(part, str) and part.endswith("/*"):
            folder = part.removesuffix("*")
            found += [page for page in pages if page.startswith(folder) and page not in named]
        else:
            found.append(_expanded(part, pages, named))
    return found
