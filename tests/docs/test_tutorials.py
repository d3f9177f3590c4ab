"""Every code block of README and the tutorials is run, in order, against a real server."""

from pathlib import Path

import pytest

from support.doc_pages import NEEDS, PAGES, README, Block, blocks_of, problem
from support.doc_shell import BlockFailed, PageShell, lint
from support.tls_proxy import command_of

PROGRAMS = {"tls-behind-nginx": ("nginx",), "prometheus-and-grafana": ("prometheus", "promtool")}
"""What pages use that no package of ours brings; `./dev test --all` installs it."""


def by_stem(page: Path) -> str:
    return page.stem


@pytest.mark.parametrize("page", PAGES, ids=by_stem)
def test_every_block_is_run_or_names_its_need(page: Path) -> None:
    blocks = blocks_of(page)
    assert blocks
    before = [None, *blocks]
    found = [
        f"{block.where} {said}"
        for block, last in zip(blocks, before, strict=False)
        if (said := problem(block, last))
    ]
    assert not found


@pytest.mark.parametrize("page", PAGES, ids=by_stem)
def test_blocks_that_cannot_be_run_here_have_no_syntax_errors(page: Path) -> None:
    found = {block.where: lint(block) for block in blocks_of(page) if block.needs}
    assert not {where: said for where, said in found.items() if said}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES, ids=by_stem)
def test_every_block_of_the_page_works_in_order(page: Path, tmp_path: Path) -> None:
    for program in PROGRAMS.get(page.stem, ()):
        command_of(program)
    with PageShell(tmp_path, in_clone=page == README) as shell:
        for block in blocks_of(page):
            if not block.needs:
                shell.run(block)
            elif block.text.startswith("git clone "):
                shell.clone()


def test_a_block_that_fails_or_prints_something_else_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    blocks = [
        Block(page, 1, "sh", "mkdir -p one; cd one; word=kept\n"),
        Block(page, 2, "sh", "echo $word in ${PWD##*/} at :8000\n"),
        Block(page, 3, "text", "kept in … at :8000\n"),
    ]
    with PageShell(tmp_path) as shell:
        for block in blocks:
            shell.run(block)
        with pytest.raises(BlockFailed, match=r"page\.md:4 is not what"):
            shell.run(Block(page, 4, "text", "lost\n"))
        with pytest.raises(BlockFailed, match=r"page\.md:5 fails"):
            shell.run(Block(page, 5, "sh", "false\ntrue\n"))


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ('sh skip="true"', "has the mark 'skip'"),
        ("sh notest", "has the mark 'notest'"),
        ('sh needs="patience"', f"needs 'patience', not one of {NEEDS}"),
        ("json", "is in the language 'json' and no file"),
        ("text", "shows output, and follows no block that is run"),
    ],
)
def test_a_mark_that_is_not_a_need_is_refused(tmp_path: Path, info: str, said: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"```{info}\n{{}}\n```\n")
    (block,) = blocks_of(page)
    assert said in problem(block, None)
