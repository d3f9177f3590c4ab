"""What an open ModelStreamInfer holds counts against the server's buffers."""

from tritonclient.grpc import service_pb2 as pb

from server.buffers import CONNECTION_BYTES
from server.http2.wire.frames import ErrorCode, rst_stream
from support.grpc import open_listener
from support.http2 import Raw, ask, data, message, to

NO_WINDOW = {"initial_window_size": 0}
WIDE = """
name: "wide" backend: "identity"
input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }
"""


def test_what_a_stream_has_read_and_made_counts_until_the_client_takes_it():
    """Window 0: requests that wait for their turn, and answers that are there before it."""
    with (
        open_listener(WIDE, buffer_limit=64 * 2**20) as listener,
        Raw(listener.listener.port, **NO_WINDOW) as raw,
    ):
        budget = listener.listener._listener._limits.budget
        tensor = pb.ModelInferRequest.InferInputTensor(name="INPUT0", datatype="FP32")
        tensor.shape[:] = [10_000]
        body = message(
            pb.ModelInferRequest(
                model_name="wide", inputs=[tensor], raw_input_contents=[bytes(40_000)]
            ).SerializeToString()
        )
        raw.send(ask(1, to("/inference.GRPCInferenceService/ModelStreamInfer")))
        raw.send(*(data(1, body, 0) for _ in range(40)))
        raw.ping()
        answered = 40 * 2 * 40_000  # 40 requests, one answer that waits and 39 behind it
        listener.wait_for(lambda: budget.held > CONNECTION_BYTES + answered * 0.9, "the account")
        raw.send(rst_stream(1, ErrorCode.CANCEL))
        listener.wait_for(lambda: budget.held == CONNECTION_BYTES, "all of it to be given back")
