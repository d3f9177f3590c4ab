"""What the playground draws of an answer, and the pictures it takes."""

import http.client
import json
from contextlib import closing
from urllib.parse import urlencode

import pytest
from starlette.responses import JSONResponse

from admin_ui.pages.picture_answers import MOST_PICTURE_BYTES, MOST_SEEN, seen_in, slot
from admin_ui.pages.playground import takes_picture
from admin_ui.services import ControlApiError
from support.admin import Api
from support.console import COOKIE, Person, person

PATH = "/playground/digits/picture"
LABEL = {"label": "cat", "score": 0.9}
BOX = {"box": [1, 2, 3.5, 4], "label": "cat", "class": 1, "score": 0.9}


def output(name: str, *data: object, datatype: str = "BYTES") -> dict[str, object]:
    return {"name": name, "datatype": datatype, "shape": [1, len(data)], "data": list(data)}


def test_documents_are_drawn_whatever_their_outputs_are_called() -> None:
    found = seen_in(
        [
            output("A", json.dumps({"labels": [{**LABEL, "index": 1, "more": [1e400]}]})),
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
     '{"labels": [{"label": "x", "score": NaN}]}',
     '{"labels": [{"label": "x", "score": 1e999}]}',
     '{"labels": [{"label": "x", "score": 1' + "0" * 400 + "}]}",
     '{"detections": [{"label": "x", "score": 1, "box": [1, 2, 3, -Infinity]}]}',
     '{"detections": [{"label": "x", "score": 1, "box": [1, 2]}]}', 7, None],
)  # fmt: skip
def test_what_cannot_be_drawn_is_left_out(data: object) -> None:
    assert seen_in([output("A", data), {"name": "B"}, 5]) == {"labels": [], "detections": []}


def test_what_is_drawn_can_be_sent_to_the_page_and_is_bounded() -> None:
    odd = {"label": "\ud800" + "x" * 9000, "score": 1, "class": [float("nan")], "box": [0, 0, 1, 1]}
    found = seen_in([output("A", json.dumps({"detections": [odd]}))])
    (row,) = found["detections"]
    assert set(row) == {"label", "score", "box"}
    assert len(JSONResponse(found).body) < 1000
    many = 3 * MOST_SEEN
    pairs = [output("LABELS", *["x"] * many), output("SCORES", *[1] * many, datatype="FP32")]
    assert len(seen_in(pairs)["labels"]) == MOST_SEEN


def test_two_users_at_a_time_send_a_picture_each() -> None:
    with slot("ada"), slot("bob"):
        for user, wrong in (("ada", "a picture of yours is on its way"), ("eve", "others are")):
            with pytest.raises(ControlApiError, match=wrong), slot(user):
                pass
    with slot("ada"):
        pass


def test_a_picture_is_refused_before_it_is_read(night: Api) -> None:
    vera = person(night, "viewer")
    for headers, status, wrong in (
        ({"Cookie": ""}, 401, ""),
        ({"X-Form-Fields": ""}, 403, "was not sent by this console"),
        ({"X-Form-Fields": "x" * 17000}, 413, "16384 bytes at most"),
        ({"Origin": ""}, 403, "must have an Origin"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415, "wrong_type"),
        ({}, 503, "no gateway"),
    ):
        kept = {name: value for name, value in _head(vera, **headers).items() if value}
        connection = http.client.HTTPConnection("127.0.0.1", night.port, timeout=30)
        connection.request("POST", PATH, headers=kept)
        with closing(connection), connection.getresponse() as answer:
            said = answer.read().decode()
        assert (answer.status, wrong in said) == (status, True), said


def _head(one: Person, **changed: str) -> dict[str, str]:
    return {
        "Content-Length": str(MOST_PICTURE_BYTES),
        "Accept": "application/json",
        "Content-Type": "application/octet-stream",
        "X-Form-Fields": urlencode({"token": one.token, "target": "", "kind": "image/png"}),
        "Origin": one.api.url,
        "Cookie": f"{COOKIE}={one.cookie}",
        **changed,
    }


def test_a_model_takes_a_picture_where_its_config_says_so() -> None:
    assert takes_picture({"parameters": {"request_body.image": {"string_value": "X"}}})
    assert not takes_picture({})
