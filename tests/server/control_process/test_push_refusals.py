"""What a pusher with the stock git client reads when a push is refused; and nothing is left."""

import gzip
import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from repository.lfs import pointer
from repository.lfs.pointer import Pointer
from support.git_http import git
from support.imports import onnx_model
from support.native_code import loaders, mapping, operators
from support.refusals import (
    commit_with,
    config_of,
    pushes,
    refused,
    remote_lines,
    started,
    write,
)
from support.server import write_identity as write_model
from support.yard import Yard, write_identity, yard

ONNX = 'backend: "onnxruntime"\nmax_batch_size: 8\ninput { name: "x" data_type: %s dims: %s }\n'


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


# the config


@pytest.mark.parametrize(
    ("name", "line", "says"),
    [
        ("syntax", "parameters { key: }", ":9:19 E101 "),
        ("field", "max_bach_size: 8", ":9:1 E102 "),
        ("value", "instance_group { count: -1 }", ":9:18 E130 instance_group[0].count must be ≥ 1"),
        ("enum", "input { name: 'B' data_type: TYPE_FP23 dims: 1 }", ":9:"),
        ("twice", "max_batch_size: 4", ":9:1 E106 "),
        ("selects", "version_policy { specific { versions: 7 } }", ":9:1 E202 "),
    ],
)
def test_a_broken_config_is_shown_by_line_and_column(
    y: Yard, name: str, line: str, says: str
) -> None:
    work = started(y, f"config-{name}", f"config-{name}")
    config = config_of(work, f"config-{name}")
    kept = [one for one in config.read_text().splitlines() if one]
    config.write_text("\n".join([*kept, *[""] * (8 - len(kept)), line, ""]))
    y.commit(work, "broken")
    refused(y, work, says=f"models/config-{name}/config.pbtxt{says}")


def test_a_number_out_of_range_reads_as_the_manual_has_it(y: Yard) -> None:
    work = started(y, "number", "number")
    config = config_of(work, "number")
    config.write_text(config.read_text().replace("size: 8", "size: -4"))
    y.commit(work, "negative")
    refused(
        y,
        work,
        says=("models/number/config.pbtxt:3:1 E103 max_batch_size must be ≥ 0, got -4",),
    )


def test_a_folder_that_is_no_model_is_refused(y: Yard) -> None:
    work = started(y, "nomodel", "ismodel")
    write(work, {"models/notes/a.txt": "x", "models/nested/m/1/a.txt": "x"})
    y.commit(work, "no models")
    refused(y, work, says=("models/notes E204 is no model", "models/nested E204 is no model"))


def test_a_version_folder_that_is_ignored_is_refused(y: Yard) -> None:
    work = started(y, "ignored", "ignored")
    write(work, {"models/ignored/v2/a.txt": "x"})
    y.commit(work, "v2")
    refused(y, work, says="models/ignored/v2 E208 is ignored")


# the artefact


@pytest.mark.parametrize(
    ("name", "data_type", "dims", "says"),
    [
        ("dims", "TYPE_FP32", "5", "but dims is [5]"),
        ("dtype", "TYPE_FP64", "4", "data_type is TYPE_FP64"),
    ],
)
def test_an_artefact_that_contradicts_its_config_is_refused(
    y: Yard, name: str, data_type: str, dims: str, says: str
) -> None:
    work = y.repository(f"onnx-{name}")
    model = f"onnx-{name}"
    write(
        work,
        {
            f"models/{model}/config.pbtxt": ONNX % (data_type, dims),
            f"models/{model}/1/model.onnx": onnx_model(),
        },
    )
    y.commit(work, "contradicts")
    refused(y, work, says=(f"models/{model}/1 E300 model '{model}' version 1: ", says))


def test_a_torn_artefact_is_refused(y: Yard) -> None:
    work = y.repository("torn")
    whole = onnx_model(padding_bytes=5000)
    write(work, {"models/torn/1/model.onnx": whole[: len(whole) - 60]})
    y.commit(work, "torn")
    refused(y, work, says="models/torn/1 E300 model 'torn' version 1: ")


# Git LFS


def test_a_pointer_whose_object_was_never_uploaded_is_refused(y: Yard) -> None:
    work = started(y, "lfsless")
    lost = pointer.write(Pointer("ab" * 32, 1000))
    write(work, {"models/lfsless/1/model.onnx": lost})
    y.commit(work, "without its object")
    refused(
        y,
        work,
        says="models/lfsless/1/model.onnx E430 points to the LFS object abababababab…, which has "
        "not been uploaded; run 'git lfs push --all origin HEAD' and push again",
    )


def test_a_damaged_pointer_is_refused(y: Yard) -> None:
    work = started(y, "lfsbad")
    write(work, {"models/lfsbad/1/model.onnx": f"version {pointer.VERSION}\noid sha256:ab\n"})
    y.commit(work, "damaged")
    refused(y, work, says="models/lfsbad/1/model.onnx E431 LFS pointer has oid 'sha256:ab'")


# the tree


@pytest.mark.parametrize(
    ("mode", "name", "says"),
    [
        ("120000", "link", "models/odd/1/link E400 is a symbolic link; replace it by the file"),
        ("160000", "module", "models/odd/1/module E401 is a submodule, which is not fetched"),
        ("100644", "a\\b", "E402 leads out of its folder on some systems"),
        ("100644", "PLAIN.TXT", "E406 differs from 'models/odd/1/PLAIN.TXT' only in case"),
        ("100644", "a\nb", "E404 has characters that cannot be shown"),
        ("100644", "a\N{RIGHT-TO-LEFT OVERRIDE}b", "E404 has characters that cannot be shown"),
        ("100644", "a\udcffb", "E404 has characters that cannot be shown"),
        ("100644", "a.", "E407 has a name that ends in a dot or space"),
        ("100644", "n" * 256, "E405 is too long; keep to 255 bytes a name"),
    ],
)
def test_what_no_tree_may_have_is_refused(y: Yard, mode: str, name: str, says: str) -> None:
    work = y.repository(f"tree-{abs(hash((mode, name))) % 10**9}")
    commit = commit_with(work, name, mode, b"plain.txt")
    refused(y, work, f"{commit}:refs/heads/main", says=says)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("..", "E402 is a folder that contains '..' (hasDotdot); rename what is in it"),
        (".git", "E403 is a folder that contains '.git' (hasDotgit); rename what is in it"),
    ],
)
def test_a_path_that_git_itself_refuses_is_told_in_our_words_too(
    y: Yard, name: str, says: str
) -> None:
    work = y.repository(f"fsck-{len(name)}")
    commit = commit_with(work, name)
    said = refused(y, work, f"{commit}:refs/heads/main", says=(says, "nothing was changed in"))
    assert_kept_as_told(y, work, said)
    tree = re.search(r"grep ([0-9a-f]{12})", said)
    assert tree is not None
    assert "models/odd/1" in y.git(work, "rev-list", "--objects", commit).split(tree[1])[1]


def assert_kept_as_told(y: Yard, work: Path, said: str) -> None:
    """The newest push's report is what stood on the pusher's terminal."""
    report = pushes(y, work.name.removeprefix("work-"))[0]["report"]
    assert report
    assert set(report.splitlines()) <= set(remote_lines(said))


def test_any_branch_and_tag_is_held_to_what_trees_may_have(y: Yard) -> None:
    work = y.repository("anyref")
    commit = commit_with(work, "link", "120000", b"/etc/passwd")
    refused(y, work, f"{commit}:refs/heads/try", says="E400 is a symbolic link")
    refused(y, work, f"{commit}:refs/tags/v1", says="E400 is a symbolic link")


def test_of_many_complaints_the_last_line_says_how_many_more(y: Yard) -> None:
    work = started(y, "many-links")
    target = git(work, "hash-object", "-w", "--stdin", stdin=b"elsewhere")
    links = "".join(f"120000 {target}\tmodels/m/1/link{number}\n" for number in range(57))
    git(work, "update-index", "--add", "--index-info", stdin=links.encode())
    git(work, "commit", "-q", "-m", "links")
    said = refused(y, work, says=("E400 is a symbolic link", "… and 7 more"))
    assert len([line for line in remote_lines(said) if "E400" in line]) == 50


# budgets


def test_budgets_are_told_with_what_to_do(y: Yard) -> None:
    budgets = {"max_file_bytes": 2000, "max_files": 20, "max_models": 2}
    work = started(y, "budgets", "b1", budgets=budgets)
    write(work, {"models/b1/1/big.txt": bytes(2001)})
    y.commit(work, "a big file")
    refused(y, work, says="models/b1/1/big.txt E410 has 2001 bytes, of 2000 allowed; put it into")
    (work / "models/b1/1/big.txt").unlink()
    write_identity(work, "b2", 1)
    write_identity(work, "b3", 1)
    y.commit(work, "three models")
    refused(y, work, says="E454 the commit has 3 models, of 2 allowed; split the repository")
    write(work, {f"docs/{number}.txt": "x" for number in range(20)})
    y.commit(work, "many files")
    refused(y, work, says="E412 has more than the 20 files a push may have; pack them into fewer")


@pytest.mark.parametrize("size_bytes", [200_000, 3_000_000], ids=["with length", "chunked"])
def test_a_pack_above_the_budget_is_refused(y: Yard, size_bytes: int) -> None:
    work = started(y, f"pack-{size_bytes}", budgets={"max_pack_bytes": 100_000})
    noise = git(work, "hash-object", "-w", "--stdin", stdin=_noise(size_bytes))
    write(work, {"models/m/1/a.txt": "x"})
    git(work, "update-index", "--add", "--cacheinfo", f"100644,{noise},models/m/1/noise.bin")
    git(work, "commit", "-q", "-m", "large")
    told = "E413 the push has more than the 100000 bytes this repository takes at once; put large"
    said = refused(y, work, says=("pack exceeds maximum allowed size", told))
    assert_kept_as_told(y, work, said)


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
    bad = commit_with(deployed, "link", "120000", b"/etc/passwd")
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


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("model.pkl", "is of format pickle, which can carry code"),
        ("model.pt", "is of format torch or torchscript, which can carry code"),
        ("model.py", "is of format python, which can carry code"),
        ("model.so", "is of format native_library, which can carry code"),
        ("model.weights", "is of no format this repository takes; it takes .csv"),
    ],
)
def test_a_file_that_can_carry_code_is_refused(y: Yard, file: str, says: str) -> None:
    model = file.replace(".", "-")
    work = started(y, f"code-{model}", model)
    write(work, {f"models/{model}/1/{file}": b"\x80\x04N."})
    y.commit(work, "code")
    refused(y, work, says=(f"models/{model}/1/{file} E440 {says}",))


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("1/ops.txt", b"\x7fELF\2\1\1" + bytes(60), "holds a native library or program, whatever"),
        ("1/model.onnx", pickle.dumps({"a": 1}, 4), "holds a pickle, whatever it is called, which"),
        (
            "labels.csv",
            gzip.compress(b"x", mtime=0),
            "holds compressed data, whatever it is called; files",
        ),
        ("1/model.safetensors", b"text", "holds text, whatever it is called; files of its name"),
        ("1/model.pt2", b"\x89HDF\r\n\x1a\n", "holds an HDF5 file, whatever it is called; files"),
        ("1/notes.txt~", b"x", "is of no format this repository takes"),
        ("1/.hidden", b"x", "is hidden, and a model's hidden files are never read; remove it"),
        (".cache/model.onnx", b"x", "is hidden, and a model's hidden files are never read"),
        ("1/.gitkeep/x.txt", b"x", "is hidden, and a model's hidden files are never read"),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_a_file_is_judged_by_what_it_holds(y: Yard, file: str, content: bytes, says: str) -> None:
    model = f"held-{abs(hash(file)) % 10**9}"
    work = started(y, model, model)
    write(work, {f"models/{model}/{file}": content})
    y.git(work, "add", "-f", ".")
    y.commit(work, "not what it is called")
    code = "E409" if "hidden" in says else "E440"
    refused(y, work, says=f"models/{model}/{file} {code} {says}")


def test_hidden_files_that_git_reads_pass_with_a_model(y: Yard) -> None:
    work = started(y, "gits", "gits")
    for name in (".gitattributes", "1/.gitignore", "1/.gitkeep", ".lfsconfig"):
        write(work, {f"models/gits/{name}": ""})
    write(work, {".github/workflows/test.yml": "on: push", ".pre-commit-config.yaml": ""})
    y.commit(work, "git's own")
    assert "served: gits" in y.push(work)


def test_a_config_names_no_hidden_file(y: Yard) -> None:
    work = started(y, "names-hidden", "names-hidden")
    config = config_of(work, "names-hidden")
    config.write_text(config.read_text() + 'default_model_filename: ".gitkeep"\n')
    write(work, {"models/names-hidden/1/.gitkeep": "x"})
    y.commit(work, "named")
    refused(y, work, says="E119 default_model_filename must not name a hidden file")


def test_a_python_backend_under_another_file_name_is_refused(y: Yard) -> None:
    work = y.repository("disguise")
    config = 'backend: "python" default_model_filename: "model.txt"'
    write(
        work, {"models/disguise/config.pbtxt": config, "models/disguise/1/model.txt": "import os"}
    )
    y.commit(work, "code in a text")
    refused(y, work, says="models/disguise/1 E440 would run code with the backend 'python'")


def test_operators_of_a_models_own_are_served_by_a_worker_where_an_administrator_allowed_them(
    y: Yard, tmp_path: Path
) -> None:
    marker = tmp_path / "loaded"
    work = y.repository("operators")
    config = 'backend: "onnxruntime" model_operations { op_library_filename: "ops.so" }'
    write(
        work,
        {
            "models/operators/config.pbtxt": config,
            "models/operators/1/model.onnx": onnx_model(),
        },
    )
    operators(work / "models/operators/1/ops.so", marker)
    y.commit(work, "native code")
    refused(y, work, says="models/operators/1/ops.so E440 is of format native_library")
    allowed = ["onnx", "config", "native_library"]
    assert y.api("PATCH", "/repositories/operators", {"settings": {"formats": allowed}})[0] == 200
    assert "served: operators" in y.push(work)
    (worker,) = mapping("operators/1/ops.so")
    assert Path(f"/proc/{worker}/stat").read_text().split(") ")[1].split()[1] == str(y.server.pid)
    assert y.server.pid not in loaders(marker)


def test_a_library_that_the_config_names_is_refused_under_any_file_name(
    y: Yard, tmp_path: Path
) -> None:
    work = y.repository("disguised-operators")
    model = "models/disguised-operators"
    config = 'backend: "onnxruntime" model_operations { op_library_filename: "ops.txt" }'
    write(work, {f"{model}/config.pbtxt": config, f"{model}/1/model.onnx": onnx_model()})
    write(work, {f"{model}/1/ops.txt": "not even a library"})
    y.commit(work, "native code")
    told = "would load native code from 'ops.txt' (model_operations.op_library_filename)"
    column = config.index("op_library_filename") + 1
    allow = "(modelyard repo change disguised-operators --add-format native_library)"
    refused(y, work, says=(f"{model}/config.pbtxt:1:{column} E440 {told}", allow))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("formats", "ok"), [(["config"], False), (["config", "torchscript"], True)]
)
def test_torchscript_under_another_file_name_is_refused(
    y: Yard, formats: list[str], ok: bool
) -> None:
    torch = pytest.importorskip("torch")
    model = f"script{len(formats)}"
    work = y.repository(model, formats=formats)
    config = (
        'backend: "pytorch" default_model_filename: "model.json" max_batch_size: 8 '
        'input { name: "x" data_type: TYPE_FP32 dims: 4 } '
        'output { name: "OUTPUT__0" data_type: TYPE_FP32 dims: 4 }'
    )
    write(work, {f"models/{model}/config.pbtxt": config})
    (work / f"models/{model}/1").mkdir()
    traced = torch.jit.trace(torch.nn.ReLU(), torch.zeros(2, 4))
    traced.save(str(work / f"models/{model}/1/model.json"))
    y.commit(work, "TorchScript in disguise")
    if ok:
        assert f"served: {model}" in y.push(work)
    else:
        told = "holds a zip archive, whatever it is called, which can carry code and is not allowed"
        refused(y, work, says=f"models/{model}/1/model.json E440 {told}")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_program_that_runs_code_when_it_is_loaded_is_refused_and_runs_nowhere(
    y: Yard, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    from support import hostile_programs as hostile

    honest, marker = tmp_path / "model.pt2", tmp_path / "marker"
    hostile.save_program(honest)
    work = y.repository("program")
    (work / "models/program/1").mkdir(parents=True)
    for way in ("enum", "guard"):
        hostile.save_hostile(way, honest, work / "models/program/1/model.pt2", marker)
        y.commit(work, way)
        told = "would run code with the backend 'pytorch', in what 'model.pt2' holds beside what "
        advice = "export it again with torch.export.save and no code of its own, or ask an admin"
        refused(y, work, says=(f"models/program/1 E440 {told}", advice))
    (work / "models/program/1/model.pt2").write_bytes(honest.read_bytes())
    y.commit(work, "honest")
    assert "served: program" in y.push(work)
    assert not marker.exists()


def test_python_code_is_served_where_an_administrator_allowed_it(y: Yard) -> None:
    formats = ["config", "text", "python"]
    work = y.repository("allowed", formats=formats)
    example = Path(__file__).parents[3] / "examples/shout"
    write(
        work,
        {
            "models/shout/config.pbtxt": (example / "config.pbtxt").read_bytes(),
            "models/shout/1/model.py": (example / "model.py").read_bytes(),
        },
    )
    y.commit(work, "shout")
    assert "served: shout" in y.push(work)
    inputs = [{"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": ["hey"]}]
    status, body = y.server.post("/v2/models/shout/infer", {"inputs": inputs})
    assert (status, json.loads(body)["outputs"][0]["data"]) == (200, ["HEY"])


# what is not refused


def test_an_empty_commit_and_one_without_models_change_nothing(y: Yard) -> None:
    work = y.repository("empty")
    y.git(work, "commit", "-q", "--allow-empty", "-m", "nothing")
    assert "no model in this commit: put them below models/NAME/" in y.push(work)
    assert pushes(y, "empty")[0]["state"] == "served"


def test_a_branch_that_is_not_protected_can_be_deleted_and_keeps_its_models(y: Yard) -> None:
    work = started(y, "deletable", "deletable", protected=[])
    y.commit(work, "first")
    y.push(work)
    y.wait_versions("deletable", 1)
    assert "main is deleted; what it deployed stays deployed" in y.push(work, ":main")
    assert y.versions("deletable") == [1]


def test_a_version_under_a_new_number_is_another_version(y: Yard) -> None:
    work = started(y, "renumbered", "renumbered")
    y.commit(work, "first")
    y.push(work)
    y.git(work, "mv", "models/renumbered/1", "models/renumbered/2")
    y.commit(work, "renumbered")
    assert "renumbered: version 2 (identity, " in y.push(work)
    y.wait_versions("renumbered", 2)
    versions = y.api("GET", "/models/renumbered/versions")[1]["items"]
    assert len({one["digest"] for one in versions}) == 1
    assert sorted(one["version"] for one in versions) == [1, 2]


def test_words_of_strangers_play_no_tricks(y: Yard) -> None:
    work = started(y, "strangers", "strangers")
    y.git(work, "add", "-A")
    evil = "\x1b]0;owned\x07\x1b[31mred\N{RIGHT-TO-LEFT OVERRIDE}der\x1b[2J"
    author = f"Mallory{evil}\nremote: served: all <m@x>".replace("\n", " ")
    y.git(work, "commit", "-q", f"--author={author}", "-m", f"{evil}\n\nremote: served: all")
    said = y.push(work)
    shown = [
        "\n".join(remote_lines(said)),
        y.cli("push", "list", "--repo", "strangers"),
        y.cli("push", "show", pushes(y, "strangers")[0]["id"]),
        y.cli("repo", "log", "strangers"),
        str(pushes(y, "strangers")[0]["subject"]),
        str(pushes(y, "strangers")[0]["author"]),
        str(y.api("GET", "/repositories/strangers/commits")[1]["items"][0]["author"]),
    ]
    for text in shown:
        assert not {"\x1b", "\x07", "\N{RIGHT-TO-LEFT OVERRIDE}", "\x9b"} & set(text), text
    assert not [line for line in remote_lines(said) if "served: all" in line]


@pytest.mark.slow
def test_three_hundred_models_in_one_commit_are_checked_and_served(y: Yard) -> None:
    names = [f"many{number}" for number in range(300)]
    work = started(y, "many", *names)
    y.commit(work, "three hundred")
    y.push(work)
    y.wait_for(lambda: all(y.versions(name) == [1] for name in names[::60]), "them", 120)
    write_identity(work, "many7", 2)
    y.commit(work, "one more version")
    said = y.push(work)
    assert "many7: version" in said
    assert "many8" not in said


def _noise(size_bytes: int) -> bytes:
    import random

    return random.Random(7).randbytes(size_bytes)
