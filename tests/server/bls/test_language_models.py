"""A script that calls a language model: the example narrator beside a small random one."""

import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

from support.faults import rows, under_load
from support.llm_served import write_language_model
from support.scripts import write_python, write_rows
from support.server import running

ROOT = Path(__file__).parents[3]

READER = """
class TritonPythonModel:
    def execute(self, requests):
        logits = np.zeros((1, 10), np.float32)
        logits[0, 7] = 1
        return [answer(logits, "LOGITS") for _ in requests]
"""
READER_CONFIG = """
backend: "{backend}"
max_batch_size: 4
input {{ name: "IMAGE" data_type: TYPE_FP32 dims: [ 1, 8, 8 ] }}
output {{ name: "LOGITS" data_type: TYPE_FP32 dims: 10 }}
{more}
"""


def _example(root: Path, name: str) -> None:
    (root / name / "1").mkdir(parents=True)
    for file, place in (("config.pbtxt", root / name), ("model.py", root / name / "1")):
        shutil.copy(ROOT / "examples" / name / file, place)


@pytest.mark.slow
def test_script_reads_a_language_models_answer_piece_by_piece(tmp_path: Path) -> None:
    root = tmp_path / "models"
    write_language_model(root, "stories")
    write_python(root, "digits", READER, config=READER_CONFIG)
    for name in ("narrator", "shout"):
        _example(root, name)
    with running(root) as server, InferenceServerClient(server.grpc) as client:
        image = InferInput("IMAGE", [1, 8, 8], "FP32")
        image.set_data_from_numpy(np.zeros((1, 8, 8), np.float32))
        found = client.infer("narrator", [image])
        digit, line, story = (found.as_numpy(name) for name in ("DIGIT", "LINE", "STORY"))
        assert digit is not None
        assert line is not None
        assert story is not None
        assert (digit[0], line[0]) == (7, b"IT IS SEVEN")
        assert story[0]
        stats = client.get_inference_statistics("stories").model_stats[0]
        assert stats.inference_stats.success.count == 1


TELLER = """
class TritonPythonModel:
    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        call = pb_utils.InferenceRequest(
            model_name="stories",
            requested_output_names=["text_output"],
            inputs=[
                pb_utils.Tensor("text_input", np.array([b"Once upon a time"], object)),
                pb_utils.Tensor("stream", np.array([True])),
            ],
            parameters={"max_tokens": 400, "ignore_eos": True},
        )
        pieces = 0
        for response in call.exec(decoupled=True):
            if response.has_error():
                return failure(response)
            pieces += 1
            open(os.environ["TELLER_SIGN"], "w").close()
            time.sleep(0.02)
        return answer(np.array([[pieces]], np.float32))
"""


@pytest.mark.slow
def test_language_model_that_dies_under_a_script_is_the_scripts_error(tmp_path: Path) -> None:
    """Told once, with the engine's death in it; both serve again, another model saw nothing."""
    root, sign = tmp_path / "models", tmp_path / "signs" / "told"
    sign.parent.mkdir()
    write_language_model(root, "stories")
    write_python(root, "teller", TELLER)
    write_rows(root, "healthy")
    with (
        running(
            root,
            worker_sandbox_allow_write=[str(sign.parent)],
            environment={"TELLER_SIGN": str(sign)},
        ) as server,
        InferenceServerClient(server.grpc) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        with under_load(server):
            said = pool.submit(client.infer, "teller", rows(1.0))
            server.wait_for(sign.exists, "the answer to begin")
            (engine,) = server.children("engine stories")
            os.kill(engine, signal.SIGKILL)
            with pytest.raises(InferenceServerException) as caught:
                said.result(60)
            said_why = "model 'stories' version 1: the engine's process died while it answered"
            assert said_why in str(caught.value.message())
            server.wait_for(lambda: client.is_model_ready("stories"), "the engine to be back")
        found = client.infer("teller", rows(1.0)).as_numpy("OUT")
        assert found is not None
        assert found.item() > 0
        stats = client.get_inference_statistics("teller").model_stats[0].inference_stats
        assert (stats.success.count, stats.fail.count) == (1, 1)
