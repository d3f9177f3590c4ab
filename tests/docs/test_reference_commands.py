"""What the reference pages and the console offer to copy, beyond the tutorials, whose blocks are
run: commands parse as they stand, calls of the control API exist, programs compile."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from control.api.operations import OPERATIONS
from server.cli.main import UsageError, make_parser
from support.doc_pages import PAGES, ROOT, Block, blocks_of

REFERENCE = [
    page
    for page in sorted((ROOT / "docs").glob("*.md"))
    if page not in PAGES and page.name not in ("cli.md", "settings.md")
]
"""Without those that are written from the parsers themselves."""
PARSER = make_parser()
TEMPLATES = sorted((ROOT / "admin_ui" / "templates").glob("*.html"))
SHELL = ("", "sh", "bash", "console")
_ENDS = ("|", "||", "&&", ";", "&", ">", ">>", "<", "2>&1")
_OFFERED = re.compile(r'"(modelyard (?:[^"\\]|\\.)*)"( ~ )?')
_JOINED = re.compile(r'" ~ (?:[^"]|"[A-Z]*")*? ~ "')
"""Where a template puts a value into a text."""
_API = re.compile(r"/api/v1(?P<path>/[^\s'\"?)\\]*)")


def lines(block: Block) -> Iterator[str]:
    """Its commands, each on one line."""
    if block.language in SHELL:
        yield from block.text.replace("\\\n", " ").splitlines()


def commands(line: str) -> list[list[str]]:
    """The words of each `modelyard` in a line of a shell, up to what ends the command."""
    try:
        words = shlex.split(line.removeprefix("$ "), comments=True)
    except ValueError:  # a line of a program, or of output
        return []
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        del words[0]
    if words[:1] != ["modelyard"] or not words[1:]:
        return []
    end = next((at for at, word in enumerate(words) if word in _ENDS), len(words))
    return [words[1:end]]


def refused(words: list[str]) -> str:
    """Why the command line does not take these words, "" if it does."""
    try:
        PARSER.parse_args(words)
    except UsageError as error:
        return f"modelyard {' '.join(words)}: {error}"
    return ""


def is_called(verb: str, path: str) -> bool:
    """Whether the control API has such a call; words in capitals stand for anything."""
    asked = path.rstrip("/.,").split("/")
    for one in OPERATIONS:
        parts = one.path.split("/")
        if one.verb == verb and len(parts) == len(asked):
            pairs = zip(parts, asked, strict=True)
            if all(part == word or part.startswith("{") for part, word in pairs):
                return True
    return False


def calls(line: str) -> Iterator[tuple[str, str]]:
    """Verb and path of each call by curl."""
    if "curl" not in line or (found := _API.search(line)) is None:
        return
    given = re.search(r"(?:-X|--request)\s*([A-Z]+)", line)
    has_body = re.search(r"\s(?:-d|--data\S*|--json)\s", line)
    yield (given[1] if given else "POST" if has_body else "GET"), found["path"]


@pytest.mark.parametrize("page", REFERENCE, ids=lambda page: page.stem)
def test_commands_calls_and_programs_of_a_page_are_as_they_should_be(page: Path) -> None:
    wrong = []
    for block in blocks_of(page):
        if block.language == "python":
            compile(block.text, block.where, "exec")
        for line in lines(block):
            wrong += [f"{block.where} {said}" for one in commands(line) if (said := refused(one))]
            wrong += [f"{block.where} {one}" for one in calls(line) if not is_called(*one)]
    assert not wrong


def test_commands_that_the_console_offers_are_taken() -> None:
    wrong, count = [], 0
    for template in TEMPLATES:
        for found in _OFFERED.finditer(_JOINED.sub("1", template.read_text())):
            text = found[1].encode().decode("unicode_escape") + ("1" if found[2] else "")
            for one in (words for line in text.splitlines() for words in commands(line)):
                count += 1
                wrong += [f"{template.name} {said}"] if (said := refused(one)) else []
    assert not wrong
    assert count > 5


def test_a_command_and_a_call_that_do_not_exist_are_found() -> None:
    (words,) = commands("TOKEN=x modelyard rollout strat digits --to 2 | tee log")
    assert words == ["rollout", "strat", "digits", "--to", "2"]
    assert refused(words)
    assert list(calls("curl -X PUT -d '{}' localhost:8003/api/v1/nothing/digits")) == [
        ("PUT", "/nothing/digits")
    ]
    assert not is_called("PUT", "/nothing/digits")
