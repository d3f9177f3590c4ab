"""SIGTERM and SIGINT end the server in time, and quietly, whatever gRPC clients leave open."""

import http.client
import queue
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb

from support.http2 import Raw, ask, data, message, to
from support.server import running, write_identity

INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
EXIT_S = 2.0


def request(size: int) -> bytes:
    tensor = pb.ModelInferRequest.InferInputTensor(name="INPUT0", datatype="FP32", shape=[1, size])
    found = pb.ModelInferRequest(
        model_name="m", inputs=[tensor], raw_input_contents=[b"\0" * 4 * size]
    )
    return found.SerializeToString()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_in_time_beside_every_kind_of_open_stream(
    tmp_path: Path, number: signal.Signals
) -> None:
    write_identity(tmp_path, "m", 1)
    with ExitStack() as open_, running(tmp_path, exit_timeout_secs=EXIT_S) as server:
        half_sent, unread, stock = (
            open_.enter_context(Raw(server.grpc_port, initial_window_size=0)) for _ in range(3)
        )
        half_sent.send(ask(1, to(INFER)), data(1, b"\0\0\x10\0\0" + b"x" * 1000, 0))
        half_sent.send(ask(3, to(STREAM)), data(3, message(request(1)) + b"\0\0", 0))
        half_sent.send(ask(5, to(INFER)))
        unread.send(*(ask(n, to(INFER)) + data(n, message(request(1000))) for n in (1, 3, 5)))
        unread.send(*(ask(n, to(STREAM)) + data(n, message(request(1000)), 0) for n in (7, 9)))
        for raw in (half_sent, unread, stock):
            raw.ping()
        channel = open_.enter_context(grpc.insecure_channel(server.grpc))
        requests: queue.Queue[bytes | None] = queue.Queue()
        stream = channel.stream_stream(STREAM)(iter(requests.get, None))
        requests.put(request(1))
        next(stream)
        began = time.monotonic()
        server.process.send_signal(number)
        with pytest.raises(grpc.RpcError) as ended:
            next(stream)
        assert ended.value.code() == grpc.StatusCode.UNAVAILABLE
        requests.put(None)
        assert server.wait_exit() == 0
        assert time.monotonic() - began < EXIT_S + 20
        assert "Traceback" not in server.log()
        assert "exception" not in server.log().lower()


@pytest.mark.slow
def test_a_half_sent_rest_body_does_not_keep_the_server(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1)
    with running(tmp_path, exit_timeout_secs=EXIT_S) as server:
        connection = http.client.HTTPConnection(server.http, timeout=60)
        connection.putrequest("POST", "/v2/models/m/infer")
        connection.putheader("Content-Length", "1000000")
        connection.endheaders(b"{")
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < EXIT_S + 20
        assert "Traceback" not in server.log()
        connection.close()
