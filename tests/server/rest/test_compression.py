"""Compressed requests and answers: by themselves, over infer, and over the other REST paths."""

import asyncio
import gzip
import json
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from hypothesis import given
from hypothesis import strategies as st

from server.errors import InvalidRequest, RequestTooLarge
from server.rest.compression import (
    BRIEF_BYTES,
    UnsupportedCoding,
    accepted_coding,
    coding_of,
    deflate,
    inflate,
    inflate_brief,
)
from support.costs import costs_less_than
from support.http import INFER, ask, infer_body
from support.server import Server, running, write_identity

LIMIT = 1 << 20
TOO_LARGE = (
    f"Request body decompresses to more than the maximum allowed value of {LIMIT} bytes. "
    "Use --http-max-input-size to increase the limit."
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("models")
    write_identity(repository, "echo")
    with running(repository, http_max_input_size=LIMIT) as one:
        yield one


@given(st.binary(max_size=5000), st.sampled_from(["gzip", "deflate"]))
def test_what_is_deflated_inflates_to_the_same_bytes(body: bytes, coding: str) -> None:
    assert inflate(deflate(body, coding), coding, max(1, len(body))) == body


def test_several_gzip_members_are_one_body() -> None:
    assert inflate(gzip.compress(b"one") + gzip.compress(b"two"), "gzip", 100) == b"onetwo"


def test_many_members_before_a_long_one_cost_little() -> None:
    """Each once copied all that lay behind it: 500 before 32 MiB took 49 s."""
    empty, rest = gzip.compress(b""), gzip.compress(b"x" * (8 << 20), 0)

    def cheapest_s(members: int) -> float:
        """CPU seconds of the quickest of three."""
        took_s = []
        for _ in range(3):
            began_s = time.thread_time()
            assert len(inflate(empty * members + rest, "gzip", 8 << 20)) == 8 << 20
            took_s.append(time.thread_time() - began_s)
        return min(took_s)

    assert costs_less_than(20, lambda: cheapest_s(5000), lambda: cheapest_s(1))


def test_deflate_is_understood_with_and_without_its_zlib_header() -> None:
    bare = zlib.compressobj(wbits=-15)
    assert inflate(bare.compress(b"text") + bare.flush(), "deflate", 10) == b"text"
    assert inflate(zlib.compress(b"text"), "deflate", 10) == b"text"


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_body_that_inflates_beyond_the_limit_is_refused(coding: str) -> None:
    body = deflate(b"x" * 101, coding)
    assert inflate(deflate(b"x" * 100, coding), coding, 100) == b"x" * 100
    with pytest.raises(RequestTooLarge, match="maximum allowed value of 100 bytes"):
        inflate(body, coding, 100)


def test_members_beyond_the_limit_count_together() -> None:
    with pytest.raises(RequestTooLarge):
        inflate(gzip.compress(b"x" * 60) * 2, "gzip", 100)


@pytest.mark.parametrize("body", [b"", b"not gzip at all", gzip.compress(b"torn", mtime=0)[:-4]])
def test_a_body_that_is_not_what_it_says_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="the request body is not valid gzip"):
        inflate(body, "gzip", 100)


def test_what_takes_long_is_not_inflated_on_the_loop() -> None:
    assert inflate_brief(gzip.compress(b"x" * BRIEF_BYTES), "gzip", LIMIT) == b"x" * BRIEF_BYTES
    assert inflate_brief(gzip.compress(b"x" * (BRIEF_BYTES + 1)), "gzip", LIMIT) is None


@pytest.mark.parametrize(
    ("header", "coding"),
    [
        ("gzip", "gzip"),
        ("deflate", "deflate"),
        ("gzip, deflate, br", "gzip"),
        ("deflate;q=0.9, gzip;q=0.5", "deflate"),
        ("gzip;q=0", ""),
        ("gzip;q=0, *", "deflate"),
        ("*;q=0", ""),
        ("br", ""),
        ("identity, gzip;q=0.5", ""),
        ("GZIP ; Q=1.0", "gzip"),
        ("gzip;q=nonsense", ""),
        ("", ""),
    ],
)
def test_the_coding_is_chosen_by_weight(header: str, coding: str) -> None:
    assert accepted_coding(header) == coding


def test_unknown_codings_are_refused() -> None:
    assert coding_of(" X-GZIP ") == "gzip"
    assert coding_of("identity") == ""
    with pytest.raises(UnsupportedCoding, match="Unsupported compression type"):
        coding_of("br")


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_tritonclient_compresses_both_ways(server: Server, algorithm: str) -> None:
    array = np.arange(4000, dtype=np.float32).reshape(1, 4000)
    with triton.InferenceServerClient(server.http) as client:
        asked = triton.InferInput("INPUT0", [1, 4000], "FP32")
        asked.set_data_from_numpy(array)
        result = client.infer(
            "echo",
            [asked],
            request_compression_algorithm=algorithm,
            response_compression_algorithm=algorithm,
        )
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), array)


def test_tritons_aio_client_reads_every_answer_though_it_always_asks_for_gzip(
    server: Server,
) -> None:
    async def calls() -> None:
        async with triton_aio.InferenceServerClient(server.http) as client:
            assert (await client.get_model_config("echo"))["name"] == "echo"
            array = np.ones((8, 30_000), np.float32)
            asked = triton_aio.InferInput("INPUT0", list(array.shape), "FP32")
            asked.set_data_from_numpy(array)
            result = await client.infer("echo", [asked])
            np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), array)

    asyncio.run(calls())


@pytest.mark.parametrize("count", [500, 100_000])
def test_large_answers_are_compressed_where_the_client_likes_it(server: Server, count: int) -> None:
    body = infer_body(count)
    plain = ask(server, "POST", INFER, body)
    packed = ask(server, "POST", INFER, body, accept_encoding="deflate;q=0.1, gzip")
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["vary"] == "Accept-Encoding"
    assert len(packed.body) < len(plain.body) / 10
    assert gzip.decompress(packed.body) == plain.body


def test_small_answers_and_errors_are_not_compressed(server: Server) -> None:
    assert (
        "content-encoding"
        not in ask(server, "POST", INFER, infer_body(), accept_encoding="gzip").headers
    )
    refused = ask(server, "POST", INFER, b"{" * 2000, accept_encoding="gzip")
    assert refused.status == 400
    assert refused.error


def test_the_json_header_length_is_that_of_the_inflated_body(server: Server) -> None:
    header = json.dumps(
        {
            "inputs": [
                {
                    "name": "INPUT0",
                    "datatype": "FP32",
                    "shape": [1, 1000],
                    "parameters": {"binary_data_size": 4000},
                }
            ]
        }
    ).encode()
    body = gzip.compress(header + b"\0\0\x80?" * 1000)
    length = {"inference_header_content_length": str(len(header))}
    answer = ask(server, "POST", INFER, body, content_encoding="gzip", **length)
    assert answer.status == 200


@pytest.mark.parametrize("path", [INFER, "/v2/repository/index", "/v2/models/echo/generate"])
def test_an_unknown_compression_is_refused_with_those_that_are_known(
    server: Server, path: str
) -> None:
    answer = ask(server, "POST", path, infer_body(), content_encoding="br")
    assert (answer.status, answer.error) == (501, "Unsupported compression type")
    assert answer.headers["accept-encoding"] == "gzip, deflate"


@pytest.mark.parametrize("path", [INFER, "/v2/repository/index"])
@pytest.mark.parametrize("size", [LIMIT + 1, 200 * LIMIT])
def test_a_compression_bomb_is_refused_with_the_limit(server: Server, path: str, size: int) -> None:
    answer = ask(server, "POST", path, gzip.compress(bytes(size)), content_encoding="gzip")
    assert (answer.status, answer.error) == (400, TOO_LARGE)
    assert ask(server, "POST", INFER, infer_body()).status == 200


def test_bombs_do_not_make_the_server_grow(server: Server) -> None:
    bomb = gzip.compress(bytes(200 * LIMIT))

    def send(count: int) -> None:
        for _ in range(count):
            assert ask(server, "POST", INFER, bomb, content_encoding="gzip").status == 400

    send(5)
    before = rss_bytes(server.pid)
    send(20)
    assert rss_bytes(server.pid) - before < 100 * LIMIT  # half a bomb


def test_other_paths_take_compressed_bodies(server: Server) -> None:
    body = gzip.compress(b'{"ready": true}')
    answer = ask(server, "POST", "/v2/repository/index", body, content_encoding="gzip")
    assert [row["name"] for row in answer.json] == ["echo"]


def rss_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) * 1024


def test_generate_takes_and_gives_compressed_bodies(server: Server) -> None:
    body = gzip.compress(json.dumps({"INPUT0": [1.5] * 1000}).encode())
    path = "/v2/models/echo/generate"
    answer = ask(server, "POST", path, body, content_encoding="gzip", accept_encoding="deflate")
    assert answer.status == 200
    assert answer.headers["content-encoding"] == "deflate"
    assert json.loads(zlib.decompress(answer.body))["OUTPUT0"] == [1.5] * 1000
