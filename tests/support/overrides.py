"""Models that come with a load request, for tests."""

import json

ECHO = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        found = [pb_utils.get_input_tensor_by_name(one, "INPUT0").as_numpy() for one in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", x * 2)]) for x in found]
"""


def config(**changes: object) -> str:
    """The identity model's config as JSON."""
    whole = {
        "backend": "identity",
        "max_batch_size": 8,
        "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    }
    return json.dumps({**whole, **changes})
