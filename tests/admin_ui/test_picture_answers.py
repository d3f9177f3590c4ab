"""What the playground draws of an answer, and the pictures it takes."""

import base64
import json

import pytest

from admin_ui.pages.picture_answers import picture_in, seen_in
from admin_ui.pages.playground import takes_picture
from admin_ui.services import ControlApiError

LABEL = {"label": "cat", "index": 1, "score": 0.9}
BOX = {"box": [1, 2, 3.5, 4], "label": "cat", "class": 1, "score": 0.9}


def output(name: str, *data: object, datatype: str = "BYTES") -> dict[str, object]:
    return {"name": name, "datatype": datatype, "shape": [1, len(data)], "data": list(data)}


def test_documents_are_drawn_whatever_their_outputs_are_called() -> None:
    found = seen_in(
        [
            output("A", json.dumps({"labels": [LABEL]})),
            output("B", json.dumps({"detections": [BOX]})),
        ]
    )
    assert found == {"labels": [LABEL], "detections": [BOX]}


def test_without_documents_labels_and_scores_are_paired() -> None:
    outputs = [output("LABELS", "cat", "dog"), output("SCORES", 0.75, 0.25, datatype="FP32")]
    assert [row["label"] for row in seen_in(outputs)["labels"]] == ["cat", "dog"]


@pytest.mark.parametrize(
    "data",
    ["{", "[]", '{"labels": 3}', '{"labels": [3]}', '{"labels": [{"label": 1, "score": 1}]}',
     '{"labels": [{"label": "x", "score": null}]}',
     '{"detections": [{"label": "x", "score": 1, "box": [1, 2]}]}', 7, None],
)  # fmt: skip
def test_what_cannot_be_drawn_is_left_out(data: object) -> None:
    assert seen_in([output("A", data), {"name": "B"}, 5]) == {"labels": [], "detections": []}


def test_a_picture_is_read_from_url_safe_base64() -> None:
    data = bytes(range(256))
    assert picture_in(base64.urlsafe_b64encode(data).decode()) == data
    for text, wrong in (("", "choose a picture"), ("ä", "cannot be read")):
        with pytest.raises(ControlApiError, match=wrong):
            picture_in(text)


def test_a_model_takes_a_picture_where_its_config_says_so() -> None:
    assert takes_picture({"parameters": {"request_body.image": {"string_value": "X"}}})
    assert not takes_picture({})
