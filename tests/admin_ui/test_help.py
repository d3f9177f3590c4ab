"""The docs in the console: links lead to pages that are there, and nothing is run."""

import re

from admin_ui.console import SCREENS
from admin_ui.pages.help import help_pages, html_of, rendered
from support.admin import Api
from support.console import person


def test_headings_have_the_ids_that_links_use() -> None:
    assert '<h2 id="what-is-kept">' in html_of("# T\n\n## What is kept\n")


def test_links_to_other_pages_are_ours_and_those_to_files_are_none() -> None:
    text = "# T\n[a](routes.md#arms) [b](tutorials/pytorch.md) [c](../examples/x.py) [d](https://x.org)"
    found = html_of(text)
    assert '<a href="/help/routes#arms">a</a>' in found
    assert '<a href="/help/tutorials.pytorch">b</a>' in found
    assert "<a>c</a>" in found
    assert '<a href="https://x.org">d</a>' in found
    assert '<a href="/help/git">g</a>' in html_of("[g](../git.md)", in_folder=True)


def test_html_in_the_text_and_styles_of_tables_are_left_out() -> None:
    found = html_of("<script>alert(1)</script>\n\n| a |\n|--:|\n| 1 |\n")
    assert "<script>" not in found
    assert "style=" not in found


def test_every_page_is_rendered_and_its_links_lead_somewhere() -> None:
    pages = {one.name: rendered(one.name) for one in help_pages()}
    assert {"console", "series", "tutorials.pytorch"} <= set(pages)
    for name, text in pages.items():
        for to, anchor in re.findall(r'href="/help/([^"#]+)(?:#([^"]*))?"', text):
            assert to in pages, (name, to)
            assert not anchor or f'id="{anchor}"' in pages[to], (name, to, anchor)


def test_every_screen_of_the_menu_has_a_page_of_the_docs() -> None:
    names = {one.name for one in help_pages()}
    assert all(screen.docs in names for screen in SCREENS if screen.menu and screen.menu != "Docs")


def test_a_page_leads_to_its_docs(night: Api) -> None:
    vera = person(night, "viewer")
    assert 'href="/help/formats"' in vera.get("/models/digits").text
    assert "What is kept" in vera.get("/help/series").text
    assert vera.get("/help/nothing").status == 404
