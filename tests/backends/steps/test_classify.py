"""The step `classify`: order, labels, thresholds."""

from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from backends.errors import LoadFailed, ModelError
from backends.registry import backend_of
from backends.steps.classify import best_classes
from backends.steps.labels import activated
from support.pictures import answered, ask, step, step_config
from support.runtime import make_version

LABELS = {"labels.txt": "cat\ndog\neule\nfüchse\n".encode()}
LOGITS = np.array([[1.0, 3.0, 2.0, 0.0], [0.0, 0.0, 0.0, 9.0]], np.float32)


def test_the_best_classes_come_first_by_name(tmp_path: Path) -> None:
    found = answered(step(tmp_path, "classify", files=LABELS, top_k="2"), LOGITS=LOGITS)
    assert found["LABELS"].tolist() == [[b"dog", b"eule"], ["füchse".encode(), b"cat"]]
    assert found["INDICES"].tolist() == [[1, 2], [3, 0]]
    powers = np.exp(LOGITS[0])
    np.testing.assert_allclose(found["SCORES"][0], (powers / powers.sum())[[1, 2]], rtol=1e-6)
    document = orjson.loads(found["JSON"][0, 0])
    assert [one["label"] for one in document["labels"]] == ["dog", "eule"]
    assert document["labels"][0]["index"] == 1
    assert document["labels"][0]["score"] == pytest.approx(0.6439, abs=1e-4)


def test_classes_below_the_threshold_are_left_out(tmp_path: Path) -> None:
    instance = step(tmp_path, "classify", files=LABELS, threshold="1.5", activation="none")
    found = answered(instance, LOGITS=LOGITS)
    assert found["LABELS"].tolist() == [[b"dog", b"eule"], ["füchse".encode(), b""]]
    assert found["INDICES"].tolist() == [[1, 2], [3, -1]]
    assert found["SCORES"].tolist() == [[3, 2], [9, 0]]
    assert len(orjson.loads(found["JSON"][1, 0])["labels"]) == 1
    nothing = answered(instance, LOGITS=np.zeros((1, 4), np.float32))
    assert nothing["LABELS"].shape == (1, 0)
    assert orjson.loads(nothing["JSON"][0, 0]) == {"labels": []}


def test_without_labels_a_class_is_called_by_its_number(tmp_path: Path) -> None:
    found = answered(step(tmp_path, "classify", top_k="1"), LOGITS=LOGITS)
    assert found["LABELS"].tolist() == [[b"1"], [b"3"]]


def test_numbers_that_are_none_come_last_and_are_null_in_json(tmp_path: Path) -> None:
    numbers = np.array([[np.nan, 1.0, -np.inf]], np.float32)
    found = answered(step(tmp_path, "classify", activation="none"), LOGITS=numbers)
    assert found["INDICES"][0].tolist()[0] == 1
    assert orjson.loads(found["JSON"][0, 0])["labels"][1]["score"] is None


@given(arrays.arrays(np.float32, (3, 7), elements=st.floats(-50, 50, width=32)))
def test_scores_are_those_of_the_formula(numbers: np.ndarray) -> None:
    wide = numbers.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
    np.testing.assert_allclose(
        activated(numbers, "softmax"), powers / powers.sum(axis=-1, keepdims=True), atol=1e-6
    )
    np.testing.assert_allclose(activated(numbers, "sigmoid"), 1 / (1 + np.exp(-wide)), atol=1e-6)
    for row, order in zip(numbers, best_classes(numbers, 7), strict=True):
        assert order.tolist() == sorted(range(7), key=lambda index: (-row[index], index))


def test_labels_and_classes_must_be_as_many(tmp_path: Path) -> None:
    tensors = 'input { name: "LOGITS" data_type: TYPE_FP32 dims: 5 }'
    version = make_version(tmp_path, step_config("classify", {}, tensors))
    (version.path / "labels.txt").write_bytes(LABELS["labels.txt"])
    with pytest.raises(LoadFailed, match="there are 4 labels, but LOGITS has 5 classes"):
        backend_of("classify").complete(version, 4)
    error = ask(step(tmp_path / "b", "classify", files=LABELS), LOGITS=LOGITS[:, :3])
    assert isinstance(error, ModelError)
    assert "LOGITS has 3 classes, but there are 4 labels" in str(error)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("names.txt", None, "there is no 'names.txt' in folder 1/"),
        ("../names.txt", b"a", "leads out of the version's folder"),
        ("names.txt", b"\xff\xfe", "names.txt is not UTF-8"),
    ],
)
def test_a_label_file_that_cannot_be_read_is_refused(
    name: str, content: bytes | None, text: str, tmp_path: Path
) -> None:
    version = make_version(tmp_path, step_config("classify", {"labels": name}))
    if content is not None:
        (version.path / name).write_bytes(content)
    with pytest.raises(LoadFailed, match=text):
        backend_of("classify").complete(version, 4)


def test_half_precision_is_taken(tmp_path: Path) -> None:
    tensors = 'input { name: "LOGITS" data_type: TYPE_FP16 dims: 4 }'
    found = answered(step(tmp_path, "classify", tensors), LOGITS=LOGITS.astype(np.float16))
    assert found["INDICES"][0, 0] == 1
    assert found["SCORES"].dtype == np.float32
