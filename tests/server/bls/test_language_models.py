"""A script that calls a language model: the example narrator beside a small random one."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput

from support.llm_served import write_language_model
from support.scripts import write_python
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
