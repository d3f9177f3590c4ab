"""Models on a GPU, served: what stock clients are answered is what the same device computes."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tritonclient.grpc as grpc_client
import tritonclient.grpc.aio as aio_client

from support.llm_served import GREEDY, generate, generated, parameters, write_language_model
from support.server import Server, running
from support.triton import needs_gpu

pytestmark = [
    pytest.mark.gpu,
    needs_gpu,
    pytest.mark.filterwarnings(r"ignore:`torch\.jit\.\w+` is deprecated"),
]
PROMPTS = ["Once upon a time there was a fox.", "a hen", "x" * 90, "and so on"]
ANSWER = 24
ON_GPU = "instance_group { kind: KIND_GPU count: %d }\n"
LINEAR = """
backend: "pytorch"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: 64 }
output { name: "y" data_type: TYPE_FP32 dims: 32 }
output { name: "on_gpu" data_type: TYPE_BOOL dims: 1 }
"""


class Projection(torch.nn.Module):
    """A linear layer, and for each row whether it lay on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.linear(x), torch.full([x.shape[0], 1], x.is_cuda, dtype=torch.bool)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Any, Projection]]:
    root = tmp_path_factory.mktemp("repository")
    config = parameters(precision="float32", step_tokens=64, max_running=8)
    model = write_language_model(root, "tiny", config + ON_GPU % 1)
    projection = Projection().eval()
    write_projection(root, projection)
    with running(root) as server:
        yield server, model, projection


def write_projection(root: Path, projection: Projection) -> None:
    (root / "linear" / "1").mkdir(parents=True)
    (root / "linear" / "config.pbtxt").write_text(LINEAR + ON_GPU % 2)
    scripted = torch.jit.script(projection)  # type: ignore[no-untyped-call]
    scripted.save(str(root / "linear" / "1" / "model.pt"))


def test_greedy_text_is_that_of_transformers(served: tuple[Server, Any, Projection]) -> None:
    server, model, _ = served
    for prompt in PROMPTS:
        status, answer = generate(server, "tiny", prompt, max_tokens=ANSWER, **GREEDY)
        assert (status, answer["text_output"]) == (200, generated(model, prompt, ANSWER))


def test_text_asked_for_at_once_is_that_asked_for_alone(
    served: tuple[Server, Any, Projection],
) -> None:
    server, model, _ = served

    async def all_at_once() -> list[str]:
        return await asyncio.gather(*(streamed(server, prompt) for prompt in PROMPTS))

    assert asyncio.run(all_at_once()) == [generated(model, one, ANSWER) for one in PROMPTS]


async def streamed(server: Server, prompt: str) -> str:
    """The text of a ModelStreamInfer."""
    sampling = json.dumps({"max_tokens": ANSWER, **GREEDY})
    inputs = []
    for name, value in (("text_input", prompt), ("sampling_parameters", sampling)):
        inputs.append(aio_client.InferInput(name, [1], "BYTES"))
        inputs[-1].set_data_from_numpy(np.array([value.encode()], object))
    inputs.append(aio_client.InferInput("exclude_input_in_output", [1], "BOOL"))
    inputs[-1].set_data_from_numpy(np.array([True]))

    async def requests() -> Any:
        yield {"model_name": "tiny", "inputs": inputs}

    async with aio_client.InferenceServerClient(server.grpc) as client:
        pieces = []
        async for result, error in client.stream_infer(requests(), stream_timeout=60):
            assert error is None
            pieces.append(result.as_numpy("text_output")[0].decode())
    return "".join(pieces)


def test_openais_completions_have_the_text_of_transformers(
    served: tuple[Server, Any, Projection],
) -> None:
    server, model, _ = served
    body = {"model": "tiny", "prompt": PROMPTS[0], "max_tokens": ANSWER, **GREEDY}

    status, answer = server.post("/v1/completions", body)

    document = json.loads(answer)
    assert (status, document["usage"]["completion_tokens"]) == (200, ANSWER)
    assert document["choices"][0]["text"] == generated(model, PROMPTS[0], ANSWER)


def test_a_torch_model_computes_on_the_gpu(served: tuple[Server, Any, Projection]) -> None:
    server, _, projection = served
    rows = np.random.default_rng(0).standard_normal((5, 64), np.float32)
    tensor = grpc_client.InferInput("x", [5, 64], "FP32").set_data_from_numpy(rows)

    with grpc_client.InferenceServerClient(server.grpc) as client:
        found = client.infer("linear", [tensor])

    with torch.inference_mode():
        expected = projection.linear(torch.from_numpy(rows)).numpy()
    assert found.as_numpy("on_gpu").tolist() == [[True]] * 5
    np.testing.assert_allclose(found.as_numpy("y"), expected, atol=1e-5)


def test_the_config_shows_the_gpu_and_the_instances(
    served: tuple[Server, Any, Projection],
) -> None:
    config = json.loads(served[0].get("/v2/models/linear/config")[1])
    (group,) = config["instance_group"]
    assert (group["kind"], group["count"], group["gpus"]) == ("KIND_GPU", 2, [0])
