"""Grammars that take long are ended, and others do not wait for them."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from backends.llm.errors import GrammarInvalid
from backends.llm.grammar.spec import Grammar, GrammarSpec
from backends.llm.grammar.thread import MOST_OVERDUE, GrammarThread

SOON_S, WAIT_S = 0.02, 60.0


class Done:
    def allowed(self) -> Any:
        return None

    def accept(self, token: int) -> bool:
        return True


class Compiler:
    """What is called slow is compiled when `release` is set; what is called kept is kept."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def prepare(self) -> None:
        pass

    def has(self, spec: GrammarSpec) -> bool:
        return spec.text == "kept"

    def compile(self, spec: GrammarSpec) -> Grammar:
        if spec.text.startswith("slow"):
            self.release.wait(WAIT_S)
        return Done()


def regex(text: str) -> GrammarSpec:
    return GrammarSpec("regex", text)


@pytest.fixture
def compiler() -> Iterator[Compiler]:
    one = Compiler()
    yield one
    one.release.set()
    for thread in threading.enumerate():
        if thread.name == "grammars":
            thread.join(WAIT_S)


def test_a_grammar_that_takes_long_fails_and_the_next_is_compiled(compiler: Compiler) -> None:
    begin = GrammarThread(compiler, SOON_S)
    slow, quick = begin(regex("slow")), begin(regex("a"))
    with pytest.raises(GrammarInvalid, match=r"the regex took longer than 0\.02 s to compile"):
        slow.result(WAIT_S)
    assert quick.result(WAIT_S)


def test_a_grammar_that_is_kept_waits_for_no_other(compiler: Compiler) -> None:
    begin = GrammarThread(compiler)
    slow = begin(regex("slow"))
    assert begin(regex("kept")).result(WAIT_S)
    assert not slow.done()


def test_a_grammar_that_took_long_is_not_compiled_again(compiler: Compiler) -> None:
    begin = GrammarThread(compiler, SOON_S)
    assert begin(regex("slow")).exception(WAIT_S)
    compiler.release.set()
    with pytest.raises(GrammarInvalid, match="took longer"):
        begin(regex("slow")).result(WAIT_S)


def test_few_grammars_run_beyond_their_deadline_and_the_rest_is_refused(
    compiler: Compiler,
) -> None:
    begin = GrammarThread(compiler, SOON_S)
    for number in range(MOST_OVERDUE):
        assert begin(regex(f"slow{number}")).exception(WAIT_S)
    with pytest.raises(GrammarInvalid, match=r"2 others that took longer .* try again later"):
        begin(regex("a")).result(WAIT_S)
    compiler.release.set()
    for thread in threading.enumerate():
        if thread.name == "grammars":
            thread.join(WAIT_S)
    assert begin(regex("a")).result(WAIT_S)
