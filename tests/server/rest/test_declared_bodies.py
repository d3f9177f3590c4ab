"""Pictures and texts as whole bodies, over a real server."""

import json
import socket
import time
from collections.abc import Iterator
from io import BytesIO

import numpy as np
import pytest
import tritonclient.grpc
from PIL import Image

from support.color_labels import write_color_labels
from support.http import ask, infer_body
from support.pictures import file_of, png_head
from support.server import Server, running, write_identity

LIMIT = 4 << 20
COLORS = "/v2/models/colors/infer"
TEXTS = """
backend: "identity"
max_batch_size: 4
input { name: "TEXT" data_type: TYPE_STRING dims: 1 }
output { name: "SAME" data_type: TYPE_STRING dims: 1 }
parameters { key: "request_body.text" value { string_value: "TEXT" } }
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("models")
    write_color_labels(repository)
    write_identity(repository, "texts", config=TEXTS)
    write_identity(repository, "echo")
    with running(repository, http_max_input_size=LIMIT) as one:
        yield one


def picture(color: str, format: str = "JPEG", side: int = 64) -> bytes:
    return file_of(Image.new("RGB", (side, side), color), format)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("path", [COLORS, "/v2/models/colors/versions/1/infer"])
def test_a_picture_as_the_body_is_answered_with_labels(
    server: Server, format: str, path: str
) -> None:
    body = picture("blue", format)
    answer = ask(
        server, "POST", path, body, content_type=f"image/{format.lower()}", x_request_id="mine"
    )
    assert answer.status == 200
    assert answer.headers["x-request-id"] == "mine"
    outputs = {one["name"]: one for one in answer.json["outputs"]}
    assert outputs["LABELS"]["data"][0] == "blue"
    assert outputs["LABELS"]["shape"] == [1, 3]
    assert json.loads(outputs["JSON"]["data"][0])["labels"][0]["label"] == "blue"


def test_the_same_ensemble_takes_the_picture_over_grpc(server: Server) -> None:
    data = np.array([[picture("red")], [picture("lime")]], np.object_)
    tensor = tritonclient.grpc.InferInput("PICTURE", [2, 1], "BYTES")
    tensor.set_data_from_numpy(data)
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        found = client.infer("colors", [tensor])
    assert found.as_numpy("LABELS")[:, 0].tolist() == [b"red", b"green"]


def test_a_text_as_the_body_is_one_element(server: Server) -> None:
    said = "größe\nand a second line".encode()
    path = "/v2/models/texts/infer"
    answer = ask(server, "POST", path, said, content_type="text/plain; charset=UTF-8")
    assert answer.json["outputs"][0]["data"] == ["größe\nand a second line"]
    latin = ask(server, "POST", path, said, content_type="text/plain; charset=latin-1")
    assert latin.status == 400
    assert "charset is 'latin-1'; a text must be in UTF-8" in latin.error


def test_json_stays_json_for_models_that_declare_a_body_and_for_others(server: Server) -> None:
    entry = {"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": ["one"]}
    body = json.dumps({"inputs": [entry]}).encode()
    path = "/v2/models/texts/infer"
    for kind in ("application/json", "application/x-www-form-urlencoded", "image/png"):
        assert ask(server, "POST", path, body, content_type=kind).status == 200
    echo = ask(server, "POST", "/v2/models/echo/infer", infer_body(), content_type="text/plain")
    assert echo.status == 200


def test_a_charset_counts_only_where_a_text_is_a_body(server: Server) -> None:
    latin = "text/plain; charset=latin-1"
    entry = {"name": "PICTURE", "datatype": "BYTES", "shape": [1, 1], "data": ["none"]}
    body = json.dumps({"inputs": [entry]}).encode()
    answer = ask(server, "POST", COLORS, body, content_type=latin)
    assert "is not a JPEG, PNG or WebP file" in answer.error
    broken = ask(server, "POST", "/v2/models/echo/infer", b"{", content_type=latin)
    assert broken.status == 400
    assert "charset" not in broken.error


def test_a_model_that_declares_nothing_says_what_is_missing(server: Server) -> None:
    path = "/v2/models/echo/infer"
    answer = ask(server, "POST", path, picture("red"), content_type="image/jpeg")
    assert answer.status == 400
    assert "model 'echo' version 1 takes no picture as its body" in answer.error
    assert "request_body.image" in answer.error


BAD = {
    "bomb": (png_head(60_000, 60_000), "is a PNG file of 60000 × 60000 pixels, and 64000000"),
    "truncated": (picture("red", side=2000)[:-4000], "is cut short: the JPEG file has no end"),
    "text": (b"no picture at all", "is not a JPEG, PNG or WebP file"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_picture_is_a_clear_400_within_50_ms(server: Server, name: str) -> None:
    body, text = BAD[name]
    took = []
    for _ in range(8):  # the promise is the server's; other programs of the machine delay some
        began = time.perf_counter()
        answer = ask(server, "POST", COLORS, body, content_type="image/png")
        took.append(time.perf_counter() - began)
        assert answer.status == 400
        assert "in ensemble 'colors'" in answer.error
        assert text in answer.error
    assert min(took) < 0.05
    assert ask(server, "POST", COLORS, picture("red"), content_type="image/png").status == 200


def test_a_body_that_is_announced_too_long_is_refused_before_it_is_sent(server: Server) -> None:
    head = (
        f"POST {COLORS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n"
        f"Content-Length: {LIMIT + 1}\r\nExpect: 100-continue\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=30) as connection:
        connection.sendall(head.encode())
        said = BytesIO()
        while piece := connection.recv(65536):
            said.write(piece)
    assert said.getvalue().startswith(b"HTTP/1.1 400 ")
    assert b"exceeds the maximum allowed value of 4194304 bytes" in said.getvalue()


def test_a_body_that_is_waited_for_is_asked_for(server: Server) -> None:
    body = picture("lime")
    answer = ask(server, "POST", COLORS, body, content_type="image/jpeg", expect="100-continue")
    assert answer.status == 200
