"""The documentation as a site: strict, whole, and on its own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from docs import site_hooks
from docs.write_settings import ROOT
from support.browser import chromium

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
FOREIGN = re.compile(
    r"""<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=["']?(https?:)?//"""
)
FOREIGN_STYLE = re.compile(r"""url\(["']?(?:https?:)?//""")


def in_navigation(entry: Any) -> Iterator[str]:
    parts = entry.values() if isinstance(entry, dict) else entry
    for part in [entry] if isinstance(entry, str) else parts:
        yield from [part] if isinstance(part, str) else in_navigation(part)


def navigation() -> list[str]:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    made: Any = SimpleNamespace(nav=config["nav"])
    return list(in_navigation(site_hooks.on_config(made).nav))


def test_every_page_is_in_the_navigation_once() -> None:
    named = navigation()
    pages = [str(one.relative_to(ROOT / "docs")) for one in (ROOT / "docs").rglob("*.md")]
    assert sorted(named) == sorted([*pages, *site_hooks.added_pages().values()])


def led(source: str, text: str) -> str:
    page: Any = SimpleNamespace(file=SimpleNamespace(src_uri=source), meta={})
    nothing: Any = None
    return site_hooks.on_page_markdown(text, page, nothing, nothing)


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("index.md", "[a](docs/git.md#signatures)", "[a](git.md#signatures)"),
        ("index.md", "[what\nis](CHANGELOG.md)", "[what\nis](changelog.md)"),
        ("index.md", "![two\nlines](docs/rollout.png)", "![two\nlines](rollout.png)"),
        ("index.md", "see [LICENSE](LICENSE)", "see LICENSE"),
        ("tutorials/pytorch.md", "[a](../install.md)", "[a](../install.md)"),
        ("rollouts.md", "[a](../examples/stories/README.md)", "[a](examples/stories.md)"),
        ("examples/stories.md", "[a](../../docs/llm.md)", "[a](../llm.md)"),
        ("git.md", "[a](https://example.org/x.md)", "[a](https://example.org/x.md)"),
        ("git.md", "[a](#below)", "[a](#below)"),
        ("git.md", "```sh\n[a](docs/git.md)\n```\n", "```sh\n[a](docs/git.md)\n```\n"),
        ("git.md", '```sh needs="gpu"\nx\n```', '```sh title="needs an NVIDIA GPU"\nx\n```'),
    ],
)
def test_links_of_the_repository_lead_to_pages_of_the_site(
    page: str, link: str, expected: str
) -> None:
    assert led(page, link) == expected


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-d", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert (built.returncode, built.stdout + built.stderr) == (0, "")
    return folder


@pytest.mark.slow
def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) == len(navigation()) + 1  # and the one of what is not found
    assert not [str(page) for page in pages if FOREIGN.search(page.read_text())]
    styles = [*site.rglob("*.css"), *pages]
    assert not [str(file) for file in styles if FOREIGN_STYLE.search(file.read_text())]


@pytest.mark.slow
def test_pages_opened_from_a_folder_are_searched_without_a_network(site: Path) -> None:
    asked: list[str] = []
    with chromium() as browser:
        for width in (390, 1440):
            tab = browser.new_context(viewport={"width": width, "height": 900}).new_page()
            tab.on("request", lambda one: asked.append(one.url))
            tab.goto(f"file://{site}/config.html")
            assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
            tab.keyboard.press("s")
            tab.keyboard.type("max_queue_delay_microseconds")
            tab.locator(".md-search-result__item a[href*='config.html']").first.wait_for()
    assert not [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]
