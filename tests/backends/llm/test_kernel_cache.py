"""Where compiled kernels are kept, and which of them are trusted."""

import shutil
from pathlib import Path

import pytest

from backends.llm.errors import NoKernels
from backends.llm.kernels.compile import (
    SETS,
    InstructionSet,
    compiled_library,
    cpu_flags,
    instruction_sets,
    usable,
)

NEEDS_NOTHING = InstructionSet("plain", frozenset())
NEEDS_WHAT_NO_CPU_HAS = InstructionSet("other", frozenset({"time_travel"}))


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
    assert instruction_sets()[0] == NEEDS_NOTHING


def test_tiles_that_are_refused_are_not_there() -> None:
    with_tiles = frozenset({"avx2", "amx_tile", "amx_int8", "amx_bf16"})
    assert usable(with_tiles, lambda: True) == with_tiles
    assert usable(with_tiles, lambda: False) == {"avx2"}
    assert usable(frozenset({"avx2"}), lambda: pytest.fail("nobody asks")) == {"avx2"}


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


@pytest.mark.slow
def test_a_compiler_that_does_not_know_the_best_instructions_gets_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    best, *others = [one for one in SETS if one.needed <= cpu_flags()]
    if not others:
        pytest.skip(f"this CPU has kernels for {best.name} alone")
    compiler = tmp_path / "g++"
    known = shutil.which("g++")
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in */{best.name}/*) exit 1;; esac\nexec {known} "$@"\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert compiled_library().is_file()


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
    with pytest.raises(NoKernels, match="cannot be created"):
        compiled_library()
