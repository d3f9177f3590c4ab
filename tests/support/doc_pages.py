"""The code blocks of a Markdown page, in order, with the file each is for and what it needs.

An info string is read as MkDocs Material reads it: `python title="models/shout/1/model.py"` is the
content of that file, `sh needs="container"` needs a container engine. `python -m support.doc_pages`
counts what the pages' blocks need.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
"""The pages whose blocks are run."""

NEEDS = ("container", "systemd", "gpu", "internet")
"""What a block may need that a test does not have: a container engine, systemd as process 1, an
NVIDIA GPU, the internet. No other reason keeps a block from being run."""

RUN = ("sh", "bash", "python")
OUTPUT = "text"
"""The language of what the block before it prints."""

_FENCE = re.compile(r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)$")
_OPTION = re.compile(r"""(?P<key>[a-zA-Z_][\w-]*)=(?P<quote>["'])(?P<value>.*?)(?P=quote)""")


class MalformedPage(Exception):
    """A page whose blocks cannot be read: file, line and what is wrong."""


@dataclass(frozen=True)
class Block:
    """One fenced block. `line` is that of its fence, from 1; `text` ends with a newline."""

    page: Path
    line: int
    language: str
    text: str
    title: str = ""
    needs: str = ""
    marks: tuple[str, ...] = ()
    """Options of the info string but title and needs, by name."""

    @property
    def where(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def is_output(self) -> bool:
        """Whether it is what the block before it prints."""
        return self.language == OUTPUT and not self.title


def blocks_of(page: Path) -> list[Block]:
    """Raises MalformedPage for a fence that is not closed."""
    return list(_blocks(page, page.read_text().splitlines()))


def problem(block: Block, before: Block | None) -> str:
    """Why a block would neither be run, nor checked, nor say what it needs; empty if it is fine."""
    if block.marks:
        return f"has the mark {block.marks[0]!r}; only title and needs are known"
    if block.needs:
        return "" if block.needs in NEEDS else f"needs {block.needs!r}, not one of {NEEDS}"
    if block.is_output:
        followed = before is not None and not before.title and before.language in RUN
        return "" if followed else "shows output, and follows no block that is run"
    if block.title or block.language in RUN:
        return ""
    return f"is in the language {block.language!r} and no file: give it a title"


def _blocks(page: Path, lines: list[str]) -> Iterator[Block]:
    number = 0
    while number < len(lines):
        opened = _FENCE.match(lines[number])
        number += 1
        if opened is None:
            continue
        first = number
        while number < len(lines) and lines[number].strip() != opened["fence"]:
            number += 1
        if number == len(lines):
            raise MalformedPage(f"{page.name}:{first}: the block has no end")
        yield _block(page, first, opened, lines[first:number])
        number += 1


def _block(page: Path, line: int, opened: re.Match[str], lines: list[str]) -> Block:
    language, _, rest = opened["info"].strip().partition(" ")
    options = {one["key"]: one["value"] for one in _OPTION.finditer(rest)}
    loose = _OPTION.sub("", rest).split()
    indent = len(opened["indent"])
    text = "".join(f"{one[:indent].strip()}{one[indent:]}\n" for one in lines)
    marks = tuple(name for name in (*options, *loose) if name not in ("title", "needs"))
    return Block(
        page, line, language, text, options.get("title", ""), options.get("needs", ""), marks
    )


def main() -> None:
    """Print how many blocks the pages have, and which need what."""
    blocks = [block for page in PAGES for block in blocks_of(page)]
    needing = Counter(block.needs for block in blocks if block.needs)
    print(f"{len(blocks)} blocks, {len(blocks) - needing.total()} run or written or compared")
    for need, count in needing.most_common():
        places = ", ".join(block.where for block in blocks if block.needs == need)
        print(f"{count} need {need}: {places}")


if __name__ == "__main__":
    main()
