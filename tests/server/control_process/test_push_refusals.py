"""What a pusher with the stock git client reads when a push is refused; and nothing is left."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from repository.lfs import pointer
from repository.lfs.pointer import Pointer
from support.git_http import git
from support.imports import onnx_model
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


# configs, folders and artefacts: one push of many models, each wrong in its own way

CONFIGS = {
    "syntax": ("parameters { key: }", ":9:19 E101 "),
    "field": ("max_bach_size: 8", ":9:1 E102 "),
    "value": (
        "instance_group { count: -1 }",
        ":9:18 E130 instance_group[0].count must be ≥ 1",
    ),
    "enum": ("input { name: 'B' data_type: TYPE_FP23 dims: 1 }", ":9:"),
    "twice": ("max_batch_size: 4", ":9:1 E106 "),
    "selects": ("version_policy { specific { versions: 7 } }", ":9:1 E202 "),
}
"""By name: the ninth line of a config, and what is said of it."""

CONTRADICTIONS = {
    "dims": ("TYPE_FP32", "5", "but dims is [5]"),
    "dtype": ("TYPE_FP64", "4", "data_type is TYPE_FP64"),
}
"""By name: data type and dims of a config, and what of it contradicts the artefact."""


@pytest.fixture(scope="module")
def complaints(y: Yard) -> list[str]:
    """What the pusher of all of them reads, by line."""
    work = started(y, "broken", "profile", "number", "ismodel", "ignored")
    for name, (line, _) in CONFIGS.items():
        write_identity(work, name, 1)
        config = config_of(work, name)
        kept = [one for one in config.read_text().splitlines() if one]
        config.write_text("\n".join([*kept, *[""] * (8 - len(kept)), line, ""]))
    for name, (data_type, dims, _) in CONTRADICTIONS.items():
        write(
            work,
            {
                f"models/{name}/config.pbtxt": ONNX % (data_type, dims),
                f"models/{name}/1/model.onnx": onnx_model(),
            },
        )
    whole = onnx_model(padding_bytes=5000)
    config = config_of(work, "number")
    config.write_text(config.read_text().replace("size: 8", "size: -4"))
    write(
        work,
        {
            "models/profile/1/drift_profile.json": '{"format": 1,\n "features": [{"name": 7}]}\n',
            "models/notes/a.txt": "x",
            "models/nested/m/1/a.txt": "x",
            "models/ignored/v2/a.txt": "x",
            "models/torn/1/model.onnx": whole[: len(whole) - 60],
        },
    )
    y.commit(work, "broken")
    return remote_lines(refused(y, work, says="nothing was changed in"))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_broken_config_is_shown_by_line_and_column(complaints: list[str], name: str) -> None:
    told(complaints, f"models/{name}/config.pbtxt{CONFIGS[name][1]}")


def test_a_broken_drift_profile_is_shown_by_line_and_column(complaints: list[str]) -> None:
    told(complaints, "models/profile/1/drift_profile.json:2:24 E302 ")


def test_a_number_out_of_range_reads_as_the_manual_has_it(complaints: list[str]) -> None:
    told(complaints, "models/number/config.pbtxt:3:1 E103 max_batch_size must be ≥ 0, got -4")


def test_a_folder_that_is_no_model_is_refused(complaints: list[str]) -> None:
    told(complaints, "models/notes E204 is no model")
    told(complaints, "models/nested E204 is no model")


def test_a_version_folder_that_is_ignored_is_refused(complaints: list[str]) -> None:
    told(complaints, "models/ignored/v2 E208 is ignored")


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_an_artefact_that_contradicts_its_config_is_refused(
    complaints: list[str], name: str
) -> None:
    start = f"models/{name}/1 E300 model '{name}' version 1: "
    assert CONTRADICTIONS[name][2] in told(complaints, start)


def test_a_torn_artefact_is_refused(complaints: list[str]) -> None:
    told(complaints, "models/torn/1 E300 model 'torn' version 1: ")


def told(complaints: list[str], text: str) -> str:
    """The one line that says it."""
    (line,) = [one for one in complaints if text in one]
    return line


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


ODD = [
    ("120000", "link", "models/odd/1/link E400 is a symbolic link; replace it by the file"),
    ("160000", "module", "models/odd/1/module E401 is a submodule, which is not fetched"),
    ("100644", "a\\b", "E402 leads out of its folder on some systems"),
    ("100644", "PLAIN.TXT", "E406 differs from 'models/odd/1/PLAIN.TXT' only in case"),
    ("100644", "a\nb", "E404 has characters that cannot be shown"),
    ("100644", "c\N{RIGHT-TO-LEFT OVERRIDE}d", "E404 has characters that cannot be shown"),
    ("100644", "e\udcfff", "E404 has characters that cannot be shown"),
    ("100644", "a.", "E407 has a name that ends in a dot or space"),
    ("100644", "n" * 256, "E405 is too long; keep to 255 bytes a name"),
]


def test_what_no_tree_may_have_is_refused(y: Yard) -> None:
    work = y.repository("trees")
    commit = commit_with(work, *[(mode, name) for mode, name, _ in ODD], content=b"plain.txt")
    said = refused(y, work, f"{commit}:refs/heads/main", says=tuple(says for *_, says in ODD))
    lines = remote_lines(said)
    for _, _, says in ODD:
        assert sum(says in line for line in lines) == sum(says == one for *_, one in ODD), said


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
    commit = commit_with(work, ("100644", name))
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
    commit = commit_with(work, ("120000", "link"), content=b"/etc/passwd")
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


def _noise(size_bytes: int) -> bytes:
    import random

    return random.Random(7).randbytes(size_bytes)
