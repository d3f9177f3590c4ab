"""Answers a batch with its version after `delay_ms`; of `fails_every` n requests, one fails."""

import json
import time
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """What is told apart from version to version is in `terms.json` beside this file."""

    def initialize(self, args):
        folder = Path(args["model_repository"]) / args["model_version"]
        terms = json.loads((folder / "terms.json").read_text())
        self.answer = np.array([[int(args["model_version"])]], np.int64)
        self.delay_s = terms["delay_ms"] / 1000
        self.fails_every = terms["fails_every"]
        self.asked = 0

    def execute(self, requests):
        time.sleep(self.delay_s)  # once for all of them: no version is ever saturated
        return [self.answered() for _ in requests]

    def answered(self):
        self.asked += 1
        if self.fails_every and self.asked % self.fails_every == 0:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("out of stock"))
        return pb_utils.InferenceResponse([pb_utils.Tensor("VERSION", self.answer)])
