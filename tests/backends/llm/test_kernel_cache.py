"""Where compiled kernels are kept, and which of them are trusted."""

from pathlib import Path

import pytest

from backends.llm.errors import NoKernels
from backends.llm.kernels.compile import (
    SETS,
    Instructions,
    compiled_library,
    cpu_flags,
    instructions,
)

NEEDS_NOTHING = Instructions("plain", frozenset())
NEEDS_WHAT_NO_CPU_HAS = Instructions("other", frozenset({"time_travel"}))


@pytest.fixture(params=[one for one in SETS if one.needed <= cpu_flags()], ids=lambda one: one.name)
def only_these_instructions(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each set of instructions that this CPU has; skipped where it has none."""
    monkeypatch.setattr("backends.llm.kernels.compile.SETS", (request.param,))


def test_the_first_set_of_instructions_that_the_cpu_has_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offered = (NEEDS_WHAT_NO_CPU_HAS, NEEDS_NOTHING, *SETS)
    monkeypatch.setattr("backends.llm.kernels.compile.SETS", offered)
    assert instructions() == NEEDS_NOTHING


def test_a_cpu_without_any_is_told_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backends.llm.kernels.compile.SETS", (NEEDS_WHAT_NO_CPU_HAS,))
    with pytest.raises(NoKernels, match="this CPU lacks time_travel"):
        compiled_library()


@pytest.mark.slow
@pytest.mark.usefixtures("only_these_instructions")
def test_kernels_are_compiled_once_and_kept_where_only_we_can_change_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library = compiled_library()
    made = library.stat().st_mtime_ns
    assert compiled_library() == library
    assert library.stat().st_mtime_ns == made
    assert [path.name for path in library.parent.iterdir()] == [library.name]
    library.parent.chmod(0o777)
    with pytest.raises(NoKernels, match="can be changed by others"):
        compiled_library()


@pytest.mark.usefixtures("only_these_instructions")
def test_a_compiler_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text("#!/bin/sh\necho 'no such header' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(NoKernels, match=r"g\+\+ failed: no such header"):
        compiled_library()


@pytest.mark.usefixtures("only_these_instructions")
def test_a_cache_folder_that_cannot_be_made_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(NoKernels, match="cannot be made"):
        compiled_library()
