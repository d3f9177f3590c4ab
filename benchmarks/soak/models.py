"""The soak's models beyond the fault campaign's: answers that say which version gave them."""

from pathlib import Path

from benchmarks.faults import models

PLUS = '''
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUTPUT0 is twice INPUT0 plus the version."""

    def initialize(self, args):
        self.version = np.float32(args["model_version"])

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUTPUT0", 2 * one.inputs()[0].as_numpy() + self.version)]
            )
            for one in requests
        ]
'''

ROLLOUT = {
    "rollout": "progressive",
    "rollout.steps": "20, 50",
    "rollout.hold": "4s",
    "rollout.min_sample": "4",
    "rollout.mirror": "20",
    "rollout.mirror_hold": "2s",
    "rollout.mirror_sample": "2",
    "rollout.rollback_window": "0",
    "rollout.latency_ratio": "100",
    "rollout.latency_pause_ratio": "100",
    "rollout.no_data": "1h",
}
"""On a machine with other work latencies are not the candidate's: only errors and crashes count."""


def write(repository: Path) -> None:
    """`turn` (versions come and go), `split` (behind a route), `simple` (ONNX)."""
    from examples.build import EXAMPLES, build_one

    build_one(next(one for one in EXAMPLES if one.name == "simple"), repository)
    with (repository / "several" / "config.pbtxt").open("a") as config:
        config.write("instance_group { count: 8 }\n")  # its streams are not to wait for each other
    write_plus(repository / "turn", 1)
    write_plus(repository / "split", 1, more="version_policy { all {} }\n")
    write_plus(repository / "split", 2, more="version_policy { all {} }\n")


def write_plus(folder: Path, number: int, more: str = "") -> None:
    """A version of the python model, and its config."""
    (folder / str(number)).mkdir(parents=True)
    (folder / str(number) / "model.py").write_text(PLUS)
    config = models.VECTOR.format(name=folder.name, backend="python")
    (folder / "config.pbtxt").write_text(config + more)


def rollout_config() -> str:
    return "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
        for key, value in ROLLOUT.items()
    )
