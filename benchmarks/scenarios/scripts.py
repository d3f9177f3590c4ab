"""What a call from a python model to another model costs: the same model with it and without."""

import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks import models
from benchmarks.bursts import compare, rest_asker
from benchmarks.peers import modelyard
from benchmarks.peers.seam import Peer
from benchmarks.process import family
from benchmarks.report import Added, Report
from benchmarks.rounds import Plan
from benchmarks.scenarios.roster import Roster
from benchmarks.shots import answer_size, json_shot

NAME = "scripts"
QUIET = "a python model that answers by itself"
CALLING, CALLING_ASYNC = "one call of another model", "one call of another model, async"
PAIRS = ((CALLING, QUIET), (CALLING_ASYNC, QUIET))
CONCURRENCY = 8
BURSTS = 200
"""For each round asked for."""

_MODELS = {QUIET: "quiet", CALLING: "calling", CALLING_ASYNC: "calling_async"}
_CONFIG = """
backend: "{backend}"
max_batch_size: 64
input {{ name: "INPUT0" data_type: TYPE_FP32 dims: 16 }}
output {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: 16 }}
"""
_CALLED = _CONFIG.format(backend="identity") + "dynamic_batching {}\n"
_HEAD = """
import numpy as np
import triton_python_backend_utils as pb_utils


def call(request):
    return pb_utils.InferenceRequest(
        model_name="one",
        requested_output_names=["OUTPUT0"],
        inputs=[pb_utils.get_input_tensor_by_name(request, "INPUT0")],
        trace=request.trace(),
    )


class TritonPythonModel:
"""
_BODIES = {
    "quiet": """
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [
                    pb_utils.Tensor(
                        "OUTPUT0", pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
                    )
                ]
            )
            for request in requests
        ]
""",
    "calling": """
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(call(request).exec().output_tensors())
            for request in requests
        ]
""",
    "calling_async": """
    async def execute(self, requests):
        responses = [await call(request).async_exec() for request in requests]
        return [pb_utils.InferenceResponse(one.output_tensors()) for one in responses]
""",
}


def measure(plan: Plan, report: Report) -> None:
    """Each request is one execution, so that nothing is shared by a batch."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=plan.cache)))
        _write(folder)
        roster = Roster(plan, report, stack)
        for peer in roster.enter("modelyard", modelyard.started(folder, plan.cache)):
            peer.process.wait_idle()
            report.added += _added(peer, BURSTS * plan.rounds)


def _added(peer: Peer, bursts: int) -> list[Added]:
    kinds = {
        shown: (json_shot(models.identity_problem(model)),) for shown, model in _MODELS.items()
    }
    for (shot,) in kinds.values():
        answer_size(shot, peer.rest)
    with rest_asker(peer.rest, CONCURRENCY) as ask:
        pids = family(peer.process.pid)
        found = compare(pids, ask, kinds, PAIRS, concurrency=CONCURRENCY, rounds=bursts)
    return [
        Added("REST JSON", shown, base, bursts, more.base_us, more.us)
        for (shown, base), more in found.items()
    ]


def _write(folder: Path) -> None:
    (folder / "one" / "1").mkdir(parents=True)
    (folder / "one" / "config.pbtxt").write_text(_CALLED)
    for name, body in _BODIES.items():
        version = folder / name / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(_HEAD + body)
        (folder / name / "config.pbtxt").write_text(_CONFIG.format(backend="python"))
