"""What a push may contain and which refs it may move."""

import subprocess

import pytest

from repository.git import names
from repository.git.contents.tree import TreeEntry
from repository.git.rules import (
    RefUpdate,
    TreeBudgets,
    check_refs,
    check_tree,
    is_protected,
)

ZERO = "0" * 40
OLD = "a" * 40
NEW = "b" * 40


def file(path: str, size_bytes: int = 1, mode: str = "100644") -> TreeEntry:
    return TreeEntry(mode, "blob", NEW, size_bytes, path)


def codes(*entries: TreeEntry, budgets: TreeBudgets | None = None) -> list[str]:
    return [finding.code for finding in check_tree(entries, budgets or TreeBudgets())]


def ref_codes(*updates: RefUpdate, forced: tuple[str, ...] = ()) -> list[str]:
    found = check_refs(updates, ("main", "release/*", "refs/tags/v*"), forced)
    return [finding.code for finding in found]


def test_a_plain_tree_has_nothing_wrong():
    assert codes(file("README.md"), file("models/m/1/größe.onnx"), file("run", 1, "100755")) == []


def test_a_symbolic_link_is_refused_with_the_remedy():
    (finding,) = check_tree([file("models/m/1/model.onnx", 9, "120000")], TreeBudgets())
    assert str(finding) == (
        "models/m/1/model.onnx E400 is a symbolic link; replace it by the file it points to"
    )


@pytest.mark.parametrize(("mode", "code"), [("160000", "E401"), ("140000", "E408")])
def test_what_is_no_plain_file_is_refused(mode: str, code: str):
    assert codes(file("odd", 1, mode)) == [code]


@pytest.mark.parametrize("path", ["../a", "a/../b", "/etc/passwd", "a//b", "a\\b", "./a", "a/"])
def test_a_path_that_leads_out_is_refused(path: str):
    assert codes(file(path)) == ["E402"]


@pytest.mark.parametrize(
    "path",
    [".git", "a/.GIT/config", "git~1", "GIT~12/x", ".git ", ".git. .", ".git::$x", ".g\u200cit"],
)
def test_a_name_that_means_dot_git_somewhere_is_refused(path: str):
    assert codes(file(path)) == ["E403"]


@pytest.mark.parametrize("path", [".gitattributes", ".gitignore", "git", "my.git", ".github/x"])
def test_names_that_only_look_like_dot_git_pass(path: str):
    assert codes(file(path)) == []


@pytest.mark.parametrize(
    "path", ["a\nb", "a\x1b[31m", "a\x7f", "caf\udce9", "a\u202eb", "a\u2028b"]
)
def test_a_name_that_cannot_be_shown_is_refused_and_not_repeated(path: str):
    (finding,) = check_tree([file(path)], TreeBudgets())
    assert finding.code == "E404"
    assert str(finding).isprintable()


@pytest.mark.parametrize("path", ["ä" * 128, "/".join(["x" * 200] * 21)])
def test_a_name_or_path_that_is_too_long_is_refused(path: str):
    assert codes(file(path)) == ["E405"]


@pytest.mark.parametrize(
    "pair", [("Model/1/a", "model/1/b"), ("a/B", "a/b"), ("ä", "a\u0308"), ("ß", "SS")]
)
def test_names_that_are_one_on_other_systems_are_refused(pair: tuple[str, str]):
    assert codes(*map(file, pair)) == ["E406"]


@pytest.mark.parametrize("path", ["a.", "b ", "c./d"])
def test_a_name_that_windows_would_shorten_is_refused(path: str):
    assert codes(file(path)) == ["E407"]


def test_a_file_above_its_budget_is_told_of_lfs():
    (finding,) = check_tree([file("m/1/w.bin", 11)], TreeBudgets(blob_bytes=10))
    assert finding.code == "E410"
    assert "11 bytes, of 10 allowed" in finding.message
    assert "git lfs track" in finding.message


def test_files_that_are_too_large_together_are_refused():
    entries = [file(f"{number}", 4) for number in range(3)]
    assert codes(*entries, budgets=TreeBudgets(total_bytes=12)) == []
    assert codes(*entries, budgets=TreeBudgets(total_bytes=11)) == ["E411"]


def test_too_many_files_are_refused_without_looking_at_each():
    entries = [file(f"{number}", 1, "120000") for number in range(4)]
    assert codes(*entries, budgets=TreeBudgets(files=3)) == ["E412"]


def test_a_tag_is_not_told_to_merge():
    (finding,) = check_refs(
        [RefUpdate("1" * 40, "2" * 40, "refs/tags/v1")], ["refs/tags/*"], {"refs/tags/v1"}
    )
    told = "is protected and never moves; give the new commit a tag of another name"
    assert (finding.code, finding.message) == ("E422", told)


@pytest.mark.parametrize(
    "ref",
    [
        "refs/heads/--upload-pack=x",
        "refs/heads/a/-b",
        "refs/internal/deployed/x",
        "refs/replace/x",
        "HEAD",
        "refs/heads/",
        "refs/heads/HEAD",
        "refs/heads/a\u202eb",
        "refs/heads/caf\udce9",
        f"refs/heads/{OLD}",
        f"refs/heads/{'x' * 250}",
    ],
)
def test_a_ref_that_could_be_mistaken_is_refused(ref: str):
    assert ref_codes(RefUpdate(ZERO, NEW, ref)) == ["E420"]


@pytest.mark.parametrize("ref", ["refs/heads/main", "refs/tags/v1.0", "refs/heads/a/b-c_d+e=1,ü"])
def test_sane_refs_pass(ref: str):
    assert ref_codes(RefUpdate(ZERO, NEW, ref)) == []


@pytest.mark.parametrize(
    "name",
    ["a b", "a..b", "a~1", "a^", "a:b", "a?", "a*", "a[", "a\\b", "a@{1}", "@", ".a", "a/.b", "a.",
     "a.lock", "a/b.lock/c", "a//b", "/a", "a/", "a\x7f", "a\x01", "x", "x/y", "a.b", "@a", "a-b"],
)  # fmt: skip
def test_nothing_passes_that_git_itself_would_refuse(name: str):
    ref = f"refs/heads/{name}"
    git_takes = not subprocess.run(["git", "check-ref-format", ref], check=False).returncode
    assert git_takes or names.ref_problem(ref)


def test_a_protected_branch_is_neither_deleted_nor_rewritten():
    assert ref_codes(RefUpdate(OLD, ZERO, "refs/heads/main")) == ["E421"]
    forced = ("refs/heads/release/1",)
    assert ref_codes(RefUpdate(OLD, NEW, forced[0]), forced=forced) == ["E422"]
    assert ref_codes(RefUpdate(OLD, NEW, "refs/heads/main")) == []


def test_other_branches_may_be_deleted_and_rewritten():
    assert ref_codes(RefUpdate(OLD, ZERO, "refs/heads/topic")) == []
    assert ref_codes(RefUpdate(OLD, NEW, "refs/heads/topic"), forced=("refs/heads/topic",)) == []


def test_too_many_refs_at_once_are_refused():
    updates = [RefUpdate(ZERO, NEW, f"refs/heads/b{number}") for number in range(3)]
    (finding,) = check_refs(updates, (), most_updates=2)
    assert str(finding) == (
        ". E423 the push moves 3 refs, of 2 allowed at once; push fewer branches and tags at a time"
    )


def test_a_pattern_without_refs_is_of_branches():
    assert is_protected("refs/heads/release/2", ["release/*"])
    assert not is_protected("refs/tags/release/2", ["release/*"])
    assert is_protected("refs/tags/v2", ["refs/tags/v*"])


@pytest.mark.parametrize("name", ["zoo", "a", "0", "a.b-c_d", "x" * 100])
def test_repository_names_that_pass(name: str):
    assert names.repository_problem(name) == ""


@pytest.mark.parametrize(
    "name",
    ["", "..", ".zoo", "-zoo", "Zoo", "a/b", "a..b", "a.git", "a.lock", "a\n", "ü", "x" * 101],
)
def test_repository_names_that_do_not(name: str):
    assert names.repository_problem(name)
