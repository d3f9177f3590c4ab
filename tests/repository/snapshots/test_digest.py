"""Digests of contents."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repository.snapshots.digest import (
    FileEntry,
    check_model,
    check_path,
    digest,
    model_digest,
    versions,
)
from repository.snapshots.errors import BadEntry

A = FileEntry("1/a", 1, "aa" * 32)
B = FileEntry("2/a", 1, "aa" * 32)
CONFIG = FileEntry("config.pbtxt", 9, "cc" * 32)


@given(st.permutations([A, B, CONFIG]))
def test_the_order_does_not_count(files: Sequence[FileEntry]):
    assert digest(files) == digest([A, B, CONFIG])


@pytest.mark.parametrize(
    "other",
    [
        FileEntry("1/b", 1, "aa" * 32),
        FileEntry("1/a", 2, "aa" * 32),
        FileEntry("1/a", 1, "ab" * 32),
    ],
)
def test_path_size_and_content_count(other: FileEntry):
    assert digest([other]) != digest([A])


def test_a_digest_is_what_its_rule_says():
    # printf '1/a\0001\000aa…\n' | sha256sum
    assert digest([A]) == "0ead688abea9076bc43ad2f57429c816fee7cc106ca77a72cf3aa83ee14ab943"


def test_the_models_name_counts():
    assert model_digest("m", [A]) != model_digest("n", [A])


def test_a_version_has_the_same_digest_under_another_number():
    found = versions([B, CONFIG, A, FileEntry("labels/1/x", 1, "dd" * 32)])
    assert list(found) == [1, 2]
    assert digest(found[1]) == digest(found[2]) == digest([FileEntry("a", 1, "aa" * 32)])


def test_only_whole_numbers_are_versions():
    names = ("01/a", "0/a", "v1/a", "1", "-1/a", "+1/a", "10/sub/a")
    assert list(versions([FileEntry(name, 1, "aa" * 32) for name in names])) == [10]


@pytest.mark.parametrize(
    "path",
    [
        "", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a\\b", "a\0b", "a\nb", "a\x1bb",
        "\udcff", "a" * 256, "é" * 128, "/".join(["a" * 200] * 21), "a\u202eb",
    ],
)  # fmt: skip
def test_a_path_that_cannot_be_stored_is_refused(path: str):
    with pytest.raises(BadEntry):
        check_path(path)


@pytest.mark.parametrize("path", ["a", "1/model.onnx", "1/é", "a b/c", ".gitattributes", "1/...a"])
def test_an_ordinary_path_is_taken(path: str):
    check_path(path)


@pytest.mark.parametrize("model", ["", ".hidden", "a/b", "..", "m~", "__pycache__"])
def test_a_model_that_would_not_be_scanned_is_refused(model: str):
    with pytest.raises(BadEntry):
        check_model(model)
