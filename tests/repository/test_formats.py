"""The table of formats, and what people are told of files that no backend reads."""

import pytest

from repository.formats import FORMATS, format_of, placed, unserved_reason


def nothing(package: str) -> bool:
    return False


def test_endings_are_unique_and_every_format_has_a_backend_or_a_remedy() -> None:
    assert len({one.suffix for one in FORMATS}) == len(FORMATS)
    assert all(one.backend or one.remedy for one in FORMATS)


@pytest.mark.parametrize("one", [one for one in FORMATS if not one.backend], ids=lambda o: o.suffix)
def test_a_format_without_backend_is_named_with_a_remedy(one) -> None:
    reason = unserved_reason([f"m{one.suffix}", "notes.txt"], nothing)
    assert reason.startswith(f"m{one.suffix} is {one.what}, not supported yet; ")
    assert len(reason) > 60
    assert "\n" not in reason


def test_a_runtime_that_is_installed_is_named() -> None:
    reason = unserved_reason(["m.plan"], lambda package: package == "tensorrt")
    assert "the package tensorrt is installed; no backend uses it" in reason


def test_a_file_under_another_name_is_to_be_renamed() -> None:
    reason = unserved_reason(["resnet.onnx", "resnet.pkl"], nothing)
    assert "rename it to model.onnx" in reason


def test_unknown_files_have_no_reason() -> None:
    assert unserved_reason(["README.md", "labels.txt"], nothing) == ""
    assert format_of("labels.txt") is None


def test_a_file_name_that_a_shell_would_take_apart_is_not_in_a_command() -> None:
    reason = unserved_reason(["$(reboot)'.keras"], nothing)
    assert "load_model('FILE')" in reason


def test_a_loose_file_has_a_place() -> None:
    assert placed("net.onnx") == "move 'net.onnx' to 'net/1/model.onnx'"
    assert placed("net.onnx", "mine") == "move 'net.onnx' to 'mine/1/model.onnx'"
    assert "not supported yet" in placed("net.cbm")
