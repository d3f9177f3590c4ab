"""Which files of a job's output a model's next snapshot has."""

import pytest

from control.publishing.result_files import named_config, result_plan
from repository.snapshots.digest import FileEntry
from repository.sources.errors import BadLayout

OUTPUT = ["config.pbtxt", "labels.txt", "1/model.onnx", "1/data/x.bin"]
KEPT = FileEntry("config.pbtxt", 10, "c" * 64), FileEntry("1/model.onnx", 10, "d" * 64)


def test_a_new_model_gets_all_that_the_job_has_left() -> None:
    found = result_plan(OUTPUT, (), 0)
    assert found.brought == (1,)
    assert found.placed == {path: path for path in OUTPUT}


def test_a_model_that_is_there_gets_the_next_version_and_keeps_all_it_has() -> None:
    found = result_plan(OUTPUT, KEPT, 4)
    assert found.placed == {"5/model.onnx": "1/model.onnx", "5/data/x.bin": "1/data/x.bin"}
    assert (found.brought, found.kept) == ((5,), KEPT)


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (["config.pbtxt"], "no file in the folder '1/'"),
        (["1/model.onnx"], "no config.pbtxt"),
        ([*OUTPUT, "2/model.onnx"], "'2/model.onnx'; its result is one version"),
    ],
)
def test_an_output_that_is_no_version_is_refused(paths: list[str], words: str) -> None:
    with pytest.raises(BadLayout, match=words):
        result_plan(paths, (), 0)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('name: "digits"\nbackend: "onnxruntime"\n', 'name: "new"\nbackend: "onnxruntime"\n'),
        ('backend: "onnxruntime"\n', 'name: "new"\nbackend: "onnxruntime"\n'),
        ('input {\n  name: "x"\n}\n', 'name: "new"\ninput {\n  name: "x"\n}\n'),
        ('name:"a\\"b"  \n', 'name: "new"\n'),
    ],
)
def test_a_config_gets_its_model_s_name_and_tensors_keep_theirs(text: str, named: str) -> None:
    assert named_config(text, "new") == named
