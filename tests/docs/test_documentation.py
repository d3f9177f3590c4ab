"""What can be set, counted or called is documented, and what is documented exists."""

import argparse
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.python import api as python_api
from docs import write_commands, write_config, write_formats
from docs.write_settings import PAGE, ROOT, up_to_date
from server.cli.help import serve_help
from server.cli.main import make_parser
from server.metrics.exposition import METRICS
from server.settings.row import Setting
from server.settings.table import TABLE

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def tracked() -> list[Path]:
    """Every file git has or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for line in listed.stdout.splitlines() if (path := ROOT / line).is_file()]


def flags(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from flags(command)


def test_tables_of_settings_are_up_to_date() -> None:
    assert PAGE.read_text() == up_to_date(), "run ./dev fix"


def test_the_page_of_commands_is_up_to_date() -> None:
    assert write_commands.PAGE.read_text() == write_commands.page(), "run ./dev fix"


def test_the_page_of_formats_is_up_to_date() -> None:
    assert write_formats.PAGE.read_text() == write_formats.page(), "run ./dev fix"


def test_the_page_of_config_fields_is_up_to_date() -> None:
    assert write_config.PAGE.read_text() == write_config.page(), "run ./dev fix"


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_every_setting_is_documented_and_helped(row: Setting) -> None:
    flag, variable = row.flag, row.variable
    page = PAGE.read_text()
    assert f"`{flag}`" in page
    assert f"`{variable}`" in page
    assert f"{flag} " in serve_help(100)


def test_every_flag_of_every_command_is_documented() -> None:
    page = "".join((ROOT / "docs" / name).read_text() for name in ("settings.md", "cli.md"))
    undocumented = {flag for flag in flags(make_parser()) if not re.search(rf"`{flag}\b", page)}
    assert not undocumented


def test_every_metric_is_documented() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert not {metric.name for metric in METRICS if f"`{metric.name}`" not in page}


def test_every_name_of_the_python_api_is_in_its_reference() -> None:
    page = (ROOT / "docs" / "tutorials" / "python-model.md").read_text()
    reference, _, missing = page.partition("## Reference")[2].partition("### Not supported yet")
    names = {*python_api.__all__}
    described = ("InferenceRequest", "InferenceResponse", "Tensor", "TritonError", "ModelConfig")
    for one in (*described, "Logger"):
        names |= {name for name in vars(getattr(python_api, one)) if not name.startswith("_")}
    names -= {"cancelled", "sent"}  # the server's, not a model's
    assert not {name for name in names if not re.search(rf"\b{name}\b", reference)}
    shown = re.findall(r"`(?:InferenceRequest\.)?(\w+)`", missing)
    assert not {name for name in shown if name in names or hasattr(python_api, name)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert not [link for link in links if not (page.parent / link).exists()]


def test_every_page_is_linked_from_another_one() -> None:
    linked = {
        (page.parent / link).resolve()
        for page in PAGES
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
        if (page.parent / link).resolve() != page
    }
    assert not [str(page) for page in PAGES[1:] if page not in linked]


def test_the_glossary_says_each_term_once_in_a_line_and_in_their_order() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text()
    rows = page.partition("|---|---|\n")[2].strip().splitlines()
    terms = [found[1] for row in rows if (found := re.match(r"\| \*\*(.+)\*\* \| \S.*\. \|$", row))]
    assert len(terms) == len(rows) >= 60
    assert terms == sorted(set(terms), key=str.casefold)


def test_the_two_commands_of_a_clone_stand_in_the_readme_and_exist() -> None:
    text = (ROOT / "README.md").read_text()
    blocks = text.split("```")[1::2]
    commands = re.findall(r"^\./dev (\w+)", "\n".join(blocks), re.MULTILINE)
    assert commands == ["serve", "test"]
    assert "./dev serve" in blocks[0]
    listed = subprocess.run([ROOT / "dev", "help"], capture_output=True, text=True, check=True)
    assert all(re.search(rf"^  {command}\b", listed.stdout, re.MULTILINE) for command in commands)


def test_modules_the_pages_run_exist() -> None:
    text = "".join(page.read_text() for page in PAGES)
    modules = set(re.findall(r"python -m ((?:examples|benchmarks|server)[\w.]*)", text))
    missing = []
    for module in modules:
        path = ROOT / module.replace(".", "/")
        if not (path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()):
            missing.append(module)
    assert not missing


def test_changelog_says_what_is_unreleased() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(r"^## \[Unreleased\]\n\n### \w+\n\n- ", text, re.MULTILINE)


def test_no_file_names_a_place_on_someones_machine() -> None:
    places = re.compile(rb"(?<!\w)/(?:work|root|home/\w+)/|\.libra" + rb"ry/")
    found = [str(path) for path in tracked() if places.search(path.read_bytes())]
    assert not found
