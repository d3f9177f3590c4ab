"""What the names of the fetched files say about them."""

import pytest

from repository.sources.errors import BadLayout
from repository.sources.layout import SourceKind, layout, wrapper


def test_a_config_or_a_version_folder_makes_a_model() -> None:
    found = layout(["config.pbtxt", "1/model.onnx", "12/model.onnx", "labels.txt"])
    assert (found.shape, found.versions, found.has_config) == (SourceKind.MODEL, (1, 12), True)
    assert layout(["3/model.onnx"]).versions == (3,)
    assert layout(["3/model.onnx"]).places == {"3/model.onnx": "3/model.onnx"}


def test_an_artefact_alone_becomes_a_version_under_the_name_backends_look_for() -> None:
    found = layout(["resnet50.onnx", "resnet50.onnx.data"], number=4)
    assert (found.shape, found.versions) == (SourceKind.VERSION, (4,))
    assert found.places["resnet50.onnx"] == "4/model.onnx"
    assert found.places["resnet50.onnx.data"] == "4/resnet50.onnx.data"


def test_artefacts_beside_a_model_py_keep_their_names() -> None:
    assert layout(["model.py", "part.onnx"]).places["part.onnx"] == "1/part.onnx"


def test_a_checkpoint_becomes_version_1_with_everything_inside() -> None:
    found = layout(["config.json", "model-00001.safetensors", "sub/x.txt"])
    assert (found.shape, found.versions) == (SourceKind.CHECKPOINT, (1,))
    assert found.places["sub/x.txt"] == "1/sub/x.txt"


def test_the_caller_may_know_that_it_is_a_version() -> None:
    assert layout(["weights.bin"], SourceKind.VERSION).places == {"weights.bin": "1/weights.bin"}


def test_another_layout_than_the_wanted_one_is_refused() -> None:
    with pytest.raises(BadLayout, match=r"not files of one version: found 'config.pbtxt'"):
        layout(["config.pbtxt"], SourceKind.VERSION)


def test_a_refusal_lists_what_was_found_and_what_would_work() -> None:
    names = ["README.md", "src/a.c", "src/b.c", *(f"f{number}" for number in range(20))]
    with pytest.raises(BadLayout) as caught:
        layout(names)
    message = str(caught.value)
    assert "'README.md'" in message
    assert "and 10 more" in message
    assert "config.pbtxt" in message
    with pytest.raises(BadLayout, match="found nothing"):
        layout([])


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        (["m/config.pbtxt", "m/1/model.onnx"], "m"),
        (["1/model.onnx"], ""),
        (["m/x", "y"], ""),
        (["m/x", "n/x"], ""),
        (["x"], ""),
    ],
)
def test_a_single_folder_around_everything_is_a_wrapper_unless_a_version(
    paths: list[str], found: str
) -> None:
    assert wrapper(paths) == found
