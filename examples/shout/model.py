"""Answers a text in capitals, with its length: string tensors in a python model."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """TEXT string [1] → SHOUTED string [1], LENGTH INT32 [1] (characters, not bytes)."""

    @staticmethod
    def auto_complete_config(config):
        """Say here what config.pbtxt would otherwise have to."""
        config.add_input({"name": "TEXT", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "SHOUTED", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "LENGTH", "data_type": "TYPE_INT32", "dims": [1]})
        config.set_max_batch_size(8)
        config.set_dynamic_batching()
        return config

    def execute(self, requests):
        """One response per request, in order; a request may bring several rows."""
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
        read = [text.decode("utf-8") for text in texts.ravel()]
        shouted = np.array([text.upper().encode("utf-8") for text in read], dtype=np.object_)
        lengths = np.array([len(text) for text in read], dtype=np.int32)
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("SHOUTED", shouted.reshape(texts.shape)),
                pb_utils.Tensor("LENGTH", lengths.reshape(texts.shape)),
            ]
        )
