"""Refs and models that a pusher may not touch, as the pusher with the stock git client reads it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.refusals import (
    commit_with,
    pushes,
    refused,
    started,
    write,
)
from support.server import write_identity as write_model
from support.yard import Yard, yard

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def y(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    folder = tmp_path_factory.mktemp("yard")
    write_model(folder / "models", "local", 1)
    with yard(folder) as made:
        yield made


@pytest.fixture(scope="module")
def deployed(y: Yard) -> Path:
    """A repository that serves `kept` and has a commit before that."""
    work = started(y, "deployed", "kept")
    y.commit(work, "first")
    write(work, {"README.md": "About."})
    y.commit(work, "second")
    y.push(work)
    y.wait_versions("kept", 1)
    return work


# refs


def test_refs_that_could_be_mistaken_are_refused(y: Yard, deployed: Path) -> None:
    refused(
        y,
        deployed,
        "main:refs/heads/--upload-pack=x",
        says="refs/heads/--upload-pack=x E420 cannot be pushed: no part of it may begin with '-'",
    )
    refused(y, deployed, "main:refs/notes/x", says="refs/notes/x E420 cannot be pushed: only refs/")
    refused(y, deployed, "main:refs/internal/deployed/x", says="refs/internal/deployed/x E420 ")


def test_a_protected_branch_is_not_deleted_and_not_rewritten(y: Yard, deployed: Path) -> None:
    refused(y, deployed, ":main", says="refs/heads/main E421 is protected and cannot be deleted")
    refused(
        y,
        deployed,
        "+main~1:main",
        says="refs/heads/main E422 is protected and only moves forward; pull and merge first",
    )


def test_a_protected_tag_does_not_move(y: Yard) -> None:
    work = started(y, "tagged", "tagged", protected=["refs/tags/v*"])
    y.commit(work, "first")
    y.git(work, "tag", "v1")
    y.git(work, "tag", "-a", "-m", "annotated", "v2")
    said = y.push(work, "v1", "v2")
    assert "the tag v1 is stored, not deployed" in said
    assert "the tag v2 is stored, not deployed" in said
    write(work, {"README.md": "x"})
    y.commit(work, "second")
    refused(
        y,
        work,
        "+main:refs/tags/v1",
        says="refs/tags/v1 E422 is protected and never moves; give the new",
    )
    refused(y, work, ":v2", says="refs/tags/v2 E421 is protected and cannot be deleted")


def test_a_ref_to_what_is_no_commit_is_refused(y: Yard, deployed: Path) -> None:
    tree = y.git(deployed, "rev-parse", "HEAD^{tree}").strip()
    refused(y, deployed, f"{tree}:refs/tags/tree", says="refs/tags/tree E420 points to no commit")
    y.git(deployed, "tag", "-a", "-m", "of main", "annotated")
    tag = y.git(deployed, "rev-parse", "annotated").strip()
    # The client itself refuses to make a branch of a tag's own object.
    assert "rejected" in y.push(deployed, f"{tag}:refs/heads/tag", ok=False)


def test_one_bad_ref_of_two_keeps_both_where_they_are(y: Yard, deployed: Path) -> None:
    write(deployed, {"docs/more.txt": "x"})
    y.commit(deployed, "harmless")
    bad = commit_with(deployed, ("120000", "link"), content=b"/etc/passwd")
    refs = ("main", f"{bad}:refs/heads/try", "main:refs/tags/fine")
    said = refused(y, deployed, *refs, says="E400 is a symbolic link", rows=3)
    assert said.count("[remote rejected]") == 3
    y.git(deployed, "reset", "-q", "--hard", "HEAD~1")


def test_a_ref_that_git_cannot_move_is_not_taken_for_moved(y: Yard, deployed: Path) -> None:
    name = "deployed"
    y.push(deployed, "main:refs/heads/side")
    said = y.push(deployed, "main:refs/heads/side/below", "main:refs/heads/other", ok=False)
    assert "side/below" in said
    states = {row["ref"]: row["state"] for row in pushes(y, name)}
    assert states["refs/heads/other"] == "stored"
    assert states.get("refs/heads/side/below") not in ("stored", "accepted", "deployed", "served")


def test_a_token_pushes_only_where_its_scope_lets_it(y: Yard, deployed: Path) -> None:
    token = y.token
    try:
        y.log_in("push:deployed:refs/heads/try/*", "read")
        refused(y, deployed, "main:main2", says="refs/heads/main2 E424 ")
        y.push(deployed, "main:try/1")
        y.log_in("read")
        said = y.push(deployed, "main:main2", ok=False)
        assert "403" in said or "may not push" in said
    finally:
        y.token = token


# what belongs to others


def test_a_model_of_another_repository_is_refused(y: Yard, deployed: Path) -> None:
    work = started(y, "thief", "kept")
    y.commit(work, "mine now")
    refused(
        y,
        work,
        says="models/kept E451 model 'kept' belongs to the git repository 'deployed'; rename",
    )


def test_a_model_of_a_model_repository_folder_is_refused(y: Yard) -> None:
    work = started(y, "folders", "local")
    y.commit(work, "the same name")
    refused(y, work, says="models/local E451 model 'local' lies in the model repository folder")


def test_the_models_of_a_deleted_repository_may_be_pushed_elsewhere(y: Yard) -> None:
    work = started(y, "gone", "orphan")
    y.commit(work, "first")
    y.push(work)
    assert y.api("DELETE", "/repositories/gone")[0] == 204
    heir = started(y, "heir", "orphan")
    y.commit(heir, "the same")
    assert "served: orphan" in y.push(heir)


def test_the_removal_of_what_an_alias_refers_to_is_refused(y: Yard) -> None:
    work = started(y, "aliased", "aliased", "other")
    y.commit(work, "first")
    y.push(work)
    y.wait_versions("aliased", 1)
    assert y.api("PUT", "/models/aliased/aliases/champion", {"version": 1})[0] in (200, 201)
    y.git(work, "rm", "-rq", "models/aliased")
    y.commit(work, "without it")
    refused(
        y,
        work,
        says="models/aliased E453 removes the model 'aliased', which the alias champion refers to; "
        "delete that first (modelyard alias delete aliased champion)",
    )


def test_a_name_that_no_model_can_have_is_refused(y: Yard) -> None:
    work = started(y, "names", "a@b")
    y.commit(work, "a name with @")
    refused(y, work, says="models/a@b E452 'a@b' cannot name a model")


# versions and formats


def test_new_bytes_under_a_version_are_refused(y: Yard, deployed: Path) -> None:
    write(deployed, {"models/kept/1/about.txt": "other bytes"})
    y.commit(deployed, "changed")
    refused(
        y,
        deployed,
        says="models/kept/1 E450 version 1 of 'kept' exists with other bytes, and a version never "
        "changes; restore them, and put the new ones under models/kept/2",
    )
    y.git(deployed, "reset", "-q", "--hard", "HEAD~1")
