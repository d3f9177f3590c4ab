"""Models made of models: three identity steps beside one request, and a dear model that a condition
saves for the requests that need it beside the same model alone."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks import models
from benchmarks.load import fire
from benchmarks.peers import modelyard
from benchmarks.peers.seam import Peer
from benchmarks.report import Report
from benchmarks.rounds import Contest, Plan, interleave
from benchmarks.scenarios.roster import Roster
from benchmarks.scenarios.turns import Turns, take, take_steady
from benchmarks.shots import Problem, Shot, grpc_shot, json_shot

NAME = "ensembles"
ONE, THREE = "one identity request", "ensemble of three identity steps"
SIDES = {"dear": 512, "dearer": 1024}
"""By model, the side of the matrix that it multiplies by itself: about 4 and 30 ms of a core for
each request."""

DEAR = {name: f"the {name} model alone" for name in SIDES}
CONDITIONAL = {name: f"cheap model first, the {name} one for one in four" for name in SIDES}
CONCURRENCIES = (8, 32)
CONDITION_CONCURRENCY = 32
EVERY = 4
"""One of so many requests needs the dear model: the others, three quarters, are saved."""
SHARE_SAVED = 1 - 1 / EVERY

BURSTS, SLICES = 200, 5
"""For each round asked for."""

_IDENTITY = """
name: "one"
backend: "identity"
max_batch_size: 64
input { name: "INPUT0" data_type: TYPE_FP32 dims: 16 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 16 }
dynamic_batching {}
"""
_ENSEMBLE = """
platform: "ensemble"
max_batch_size: 64
input { name: "INPUT0" data_type: TYPE_FP32 dims: 16 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 16 }
"""
_STEP = """
  step {{
    model_name: "{model}"
    model_version: -1
    input_map {{ key: "INPUT0" value: "{source}" }}
    output_map {{ key: "{output}" value: "{target}" }}
  }}
"""
_CONDITIONS = """
parameters { key: "condition.one" value { string_value: "confidence >= 0.5" } }
parameters { key: "condition.2" value { string_value: "confidence < 0.5" } }
"""
_ONNX = 'backend: "onnxruntime"\nmax_batch_size: 64\n'


def measure(plan: Plan, report: Report) -> None:
    """Both pairs, in one server."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=plan.cache)))
        _write(folder)
        roster = Roster(plan, report, stack)
        for peer in roster.enter("modelyard", modelyard.started(folder, plan.cache)):
            peer.process.wait_idle()
            report.rows += interleave(list(_contests(peer, plan)), plan.rounds)
            for turns in _turns(folder, plan):
                report.ratios += take(peer, turns)
            for turns in _conditional_turns(folder, plan):
                report.ratios += take_steady(peer, turns)


def _contests(peer: Peer, plan: Plan) -> Iterator[Contest]:
    for shot_of in (json_shot, grpc_shot):
        for name, model in ((ONE, "one"), (THREE, "three")):
            shot = shot_of(models.identity_problem(model))
            once = partial(
                fire, shot, peer.address(shot.wire), peer.process, CONCURRENCIES[-1],
                plan.duration_s,
            )  # fmt: skip
            yield Contest(NAME, name, shot.wire, CONCURRENCIES[-1], once)


def _turns(folder: Path, plan: Plan) -> Iterator[Turns]:
    for shot_of in (json_shot, grpc_shot):
        kinds = {
            name: (shot_of(models.identity_problem(model)),)
            for name, model in ((ONE, "one"), (THREE, "three"))
        }
        for concurrency in CONCURRENCIES:
            yield Turns(NAME, kinds, ((THREE, ONE),), concurrency, BURSTS * plan.rounds)


def _conditional_turns(folder: Path, plan: Plan) -> Iterator[Turns]:
    for name in SIDES:
        kinds, pair = _saving(folder, name), (CONDITIONAL[name], DEAR[name])
        yield Turns(NAME, kinds, (pair,), CONDITION_CONCURRENCY, SLICES * plan.rounds)


def _saving(folder: Path, dear: str) -> Mapping[str, Sequence[Shot]]:
    """The same inputs to both; the first of every four is unsure, as its first number says."""
    sure = np.full((1, models.ROW), 0.75, np.float32)
    unsure = np.full((1, models.ROW), 0.25, np.float32)
    inputs = (unsure, *(sure for _ in range(EVERY - 1)))
    answers = [_answer(folder, dear, each) for each in inputs]
    careful = f"careful_{dear}"
    return {
        DEAR[dear]: [
            json_shot(Problem(dear, "INPUT0", each, "OUTPUT0", answer))
            for each, answer in zip(inputs, answers, strict=True)
        ],
        CONDITIONAL[dear]: [
            json_shot(
                Problem(careful, "INPUT0", each, "OUTPUT0", answer if each is unsure else each)
            )
            for each, answer in zip(inputs, answers, strict=True)
        ],
    }


def _answer(folder: Path, model: str, row: "np.ndarray") -> "np.ndarray":
    """What a model answers, by onnxruntime itself."""
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / model / "1" / "model.onnx")
    return np.asarray(session.run(["OUTPUT0"], {"INPUT0": row})[0])


def _write(folder: Path) -> None:
    """`three` calls `one` three times; `careful_dear` asks `gate`, and `one` or `dear`."""
    for name in ("one", "three", *(f"careful_{dear}" for dear in SIDES)):
        (folder / name / "1").mkdir(parents=True)
    (folder / "one" / "config.pbtxt").write_text(_IDENTITY)
    ways = (("INPUT0", "first"), ("first", "second"), ("second", "OUTPUT0"))
    steps = "".join(
        _STEP.format(model="one", source=source, output="OUTPUT0", target=target)
        for source, target in ways
    )
    (folder / "three" / "config.pbtxt").write_text(_scheduled(steps))
    gate = _STEP.format(model="gate", source="INPUT0", output="CONFIDENCE", target="confidence")
    for dear in SIDES:
        steps = gate + "".join(
            _STEP.format(model=model, source="INPUT0", output="OUTPUT0", target="OUTPUT0")
            for model in ("one", dear)
        )
        (folder / f"careful_{dear}" / "config.pbtxt").write_text(_scheduled(steps) + _CONDITIONS)
    for name, graph in (("gate", _gate()), *((dear, _dear(side)) for dear, side in SIDES.items())):
        models.save(graph, folder / name)
        (folder / name / "config.pbtxt").write_text(_ONNX)


def _scheduled(steps: str) -> str:
    return f"{_ENSEMBLE}ensemble_scheduling {{{steps}}}\n"


def _gate() -> onnx.GraphProto:
    """The first number of each row."""
    bounds = [
        numpy_helper.from_array(np.array([value], np.int64), name)
        for name, value in (("start", 0), ("end", 1), ("axis", 1))
    ]
    node = helper.make_node("Slice", ["INPUT0", "start", "end", "axis"], ["CONFIDENCE"])
    return helper.make_graph(
        [node], "gate", [_rows("INPUT0", models.ROW)], [_rows("CONFIDENCE", 1)], bounds
    )


def _dear(side: int) -> onnx.GraphProto:
    """A matrix times each row's mean, multiplied by the matrix: nothing that a batch shares."""
    weights = np.random.default_rng(0).random((side, side), np.float32) / side
    nodes = [
        helper.make_node("ReduceMean", ["INPUT0"], ["mean"], axes=[1], keepdims=1),
        helper.make_node("Reshape", ["mean", "cell"], ["factor"]),
        helper.make_node("Mul", ["factor", "weights"], ["scaled"]),
        helper.make_node("MatMul", ["scaled", "weights"], ["product"]),
        helper.make_node("ReduceMean", ["product"], ["means"], axes=[1], keepdims=0),
        helper.make_node("Slice", ["means", "start", "end", "axis"], ["OUTPUT0"]),
    ]
    numbers = {
        "weights": weights,
        "cell": np.array([-1, 1, 1], np.int64),
        "start": np.array([0], np.int64),
        "end": np.array([models.ROW], np.int64),
        "axis": np.array([1], np.int64),
    }
    return helper.make_graph(
        nodes,
        "dear",
        [_rows("INPUT0", models.ROW)],
        [_rows("OUTPUT0", models.ROW)],
        [numpy_helper.from_array(array, name) for name, array in numbers.items()],
    )


def _rows(name: str, width: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", width])
