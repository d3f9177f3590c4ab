"""An instance of a sequence model: whose state is kept, and who gets which error."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from backends.errors import ExecutionFailed, FaultyModel
from backends.seam import SEQUENCE_START, Batch, BatchResult, Result, SequenceRows, Tensors
from backends.sequences.instance import SequenceInstance
from backends.sequences.states import state_tensors
from repository.config.tensors import Array
from support.runtime import make_version, member

CONFIG = """
max_batch_size: 4
input { name: "X" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "Y" data_type: TYPE_INT32 dims: [ 1 ] }
sequence_batching { oldest { max_candidate_sequences: 4 }
  state { input_name: "IN" output_name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } }
"""


class Apart:
    """An instance that computes each member by itself, as a python model does."""

    device, cores, streams = "cpu", 1, True

    def __init__(self, compute: Callable[[Tensors], Tensors]) -> None:
        self.ready = True
        self.changed: Callable[[], None] = lambda: None
        self.compute = compute

    def execute(self, batch: Batch) -> BatchResult:
        results: list[Result] = [self.compute(one.inputs) for one in batch.members]
        return BatchResult(results, 1, 1, 1)

    def close(self) -> None:
        self.ready = False


def adding(inputs: Tensors) -> Tensors:
    """Writes to the state that it is given."""
    state = inputs["IN"]
    state += inputs["X"]
    return {"Y": state.copy(), "OUT": state}


def instance(folder: Path, compute: Callable[[Tensors], Tensors]) -> SequenceInstance:
    version = make_version(folder, CONFIG)
    return SequenceInstance(Apart(compute), version, state_tensors(version))


def run(on: SequenceInstance, values: Mapping[int, int], flags: int = 0) -> list[Result]:
    """One request of each slot, with this value."""
    rows = SequenceRows(tuple(values), (flags,) * len(values))
    members = [member(X=np.array([[value]], np.int32)) for value in values.values()]
    return list(on.execute(Batch(members, (1,) * len(values), True, rows)).results)


def value(result: Result) -> int:
    assert isinstance(result, Mapping), result
    return int(result["Y"][0, 0])


def test_a_model_that_writes_to_its_state_changes_no_other_sequence(tmp_path: Path) -> None:
    sums = instance(tmp_path, adding)
    assert [value(one) for one in run(sums, {0: 5, 1: 7}, SEQUENCE_START)] == [5, 7]
    assert [value(one) for one in run(sums, {2: 1}, SEQUENCE_START)] == [1]
    assert [value(one) for one in run(sums, {0: 1, 1: 1})] == [6, 8]


def test_a_model_that_keeps_sums_by_itself_is_not_executed_again(tmp_path: Path) -> None:
    taken: list[int] = []

    def failing(inputs: Tensors) -> Tensors:
        taken.append(int(inputs["X"][0, 0]))
        if taken[-1] < 0:
            raise ExecutionFailed("negative")
        return adding(inputs)

    results = run(instance(tmp_path, failing), {0: 5, 1: -1}, SEQUENCE_START)
    assert [str(one) for one in results] == ["negative"] * 2
    assert taken == [5, -1]


@pytest.mark.parametrize("shape", [(1, 3), (1,), (2, 1), (1, 1, 1)])
def test_only_whose_state_has_another_shape_gets_the_error(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    def growing(inputs: Tensors) -> Tensors:
        outputs = dict(adding(inputs))
        if inputs["X"][0, 0] == 9:
            wrong: Array = np.zeros(shape, np.int32)
            outputs["OUT"] = wrong
        return outputs

    sums = instance(tmp_path, growing)
    run(sums, {0: 5, 1: 7}, SEQUENCE_START)
    bad, good = run(sums, {0: 9, 1: 1})
    assert isinstance(bad, FaultyModel)
    assert f"state 'OUT' with shape {list(shape)}, its config says [1, 1]" in str(bad)
    assert value(good) == 8
    assert [value(one) for one in run(sums, {0: 1, 1: 1})] == [6, 9]


def test_a_decoupled_model_hears_nothing_of_a_batch_of_nobody(tmp_path: Path) -> None:
    decoupled = instance(tmp_path, adding)
    nobody = Batch((), (), True, SequenceRows((), (), 0, (1,)))
    assert decoupled.stream(nobody, []) == BatchResult([], 0, 0, 0)
