"""The REST listener: HTTP/1.1 as bytes on a connection of a whole gateway."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.fuzz.http1 import check_answer, join, request, split
from benchmarks.fuzz.servers import gateway, tell
from benchmarks.fuzz.target import Run, Target, Wrong

INFER = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,2],"data":[1.5,-2]}]}'
TEXT = (
    b'{"id":"a","inputs":[{"name":"IN","datatype":"BYTES","shape":[2],"data":["x","\\u00e4"]}],'
    b'"outputs":[{"name":"OUT","parameters":{"classification":1,"binary_data":false}}],'
    b'"parameters":{"priority":1,"timeout":5,"sequence_id":7,"sequence_start":true}}'
)
HEAD = (
    b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,2],'
    b'"parameters":{"binary_data_size":8}}],"parameters":{"binary_data_output":true}}'
)
BINARY = HEAD + bytes(8)
CHECK_EVERY = 500


@contextmanager
def opened() -> Iterator[Run]:
    with gateway(allow_client_shm=True) as (server, rest, _):
        count = 0

        def run(data: bytes) -> None:
            nonlocal count
            check_answer(server.run(tell(rest, data)))
            count += 1
            if count % CHECK_EVERY == 0:
                answer = server.run(tell(rest, _closing("/v2/models/echo/infer", INFER), 60.0))
                if b" 200 " not in answer[:20] or b"[1.5,-2.0]" not in answer:
                    raise Wrong(f"a valid request is answered {answer[:200]!r}")

        yield run


def _closing(path: str, body: bytes) -> bytes:
    return request("POST", path, body, {"Connection": "close"})


def seeds() -> Sequence[bytes]:
    header = {"Inference-Header-Content-Length": str(len(HEAD))}
    chunked = (
        b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: localhost\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(INFER), INFER)
    )
    return (
        request("POST", "/v2/models/echo/infer", INFER),
        request("POST", "/v2/models/text/versions/1/infer", TEXT),
        request("POST", "/v2/models/echo/infer", BINARY, header),
        request("POST", "/v2/models/many/generate_stream", b'{"INPUT0":[1,2],"id":"x"}'),
        request("POST", "/v2/models/text/generate", b'{"IN":["a"],"parameters":{"p":1}}'),
        request("POST", "/v2/repository/index", b'{"ready":true}'),
        request("POST", "/v2/repository/models/echo/load", b'{"parameters":{"config":"{}"}}'),
        request("POST", "/v2/trace/setting", b'{"trace_level":["OFF"],"trace_rate":"1"}'),
        request("POST", "/v2/logging", b'{"log_verbose_level":1,"log_format":"ISO8601"}'),
        request("POST", "/v2/systemsharedmemory/region/r/register",
                b'{"key":"/none","offset":0,"byte_size":64}'),
        request("POST", "/v1/chat/completions",
                b'{"model":"none","messages":[{"role":"user","content":"hi"}],"stream":true}'),
        request("GET", "/v2/models/echo/stats?x=1"),
        request("GET", "/v2/models/echo/config") + request("GET", "/v2/health/ready"),
        chunked,
    )  # fmt: skip


TARGET = Target(
    "rest",
    ("server.rest", "server.codec", "server.dataplane", "server.admit", "server.openai"),
    opened,
    seeds,
    split=split,
    join=join,
)
