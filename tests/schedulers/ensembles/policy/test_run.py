"""One request's way: order, conditions, rows, lists, and that every random graph ends right."""

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repository.config.ensemble_graph import EnsembleGraph
from repository.config.tensors import ELEMENT_BYTES, Array
from schedulers.ensembles.policy.compile import CompiledEnsemble, compile_ensemble
from schedulers.ensembles.policy.request_plan import RequestPlan, plan_for
from schedulers.ensembles.policy.run import Branch, EnsembleRun, run_of
from schedulers.ensembles.policy.static_run import StaticRun
from schedulers.ensembles.policy.step_call import NO_ANSWER, StepCall
from schedulers.errors import EnsembleFailed
from support.ensembles import SignatureTerms, graph_of, signature

AnyRun = EnsembleRun | StaticRun
Compute = Callable[[StepCall], list[Mapping[str, Array]]]
"""What a step's model answers, response by response."""


def compiled(
    graph: EnsembleGraph, own: SignatureTerms, *models: SignatureTerms
) -> CompiledEnsemble:
    found = compile_ensemble(graph, own, {(one.model, ""): (one,) for one in models})
    assert isinstance(found, CompiledEnsemble), found
    return found


def play(
    ensemble: CompiledEnsemble,
    inputs: Mapping[str, Any],
    compute: Compute,
    order: random.Random | None = None,
    requested: tuple[str, ...] = (),
    start: Callable[[RequestPlan, Mapping[str, Array]], AnyRun] = EnsembleRun,
) -> tuple[list[dict[str, Array]], AnyRun, list[StepCall]]:
    """Run to the end, calls answered in a random order; the answers, and all calls."""
    arrays = {name: np.asarray(value, np.float32) for name, value in inputs.items()}
    run = start(plan_for(ensemble, requested), arrays)
    answers, made, open_calls = list(run.responses()), list[StepCall](), list[StepCall]()
    while not run.finished:
        taken = run.take()
        made += taken
        open_calls += taken
        call = open_calls.pop(order.randrange(len(open_calls)) if order else 0)
        for outputs in compute(call):
            run.answered(call, outputs)
            answers += run.responses()
        run.ended(call)
    return answers, run, made


def add_one(call: StepCall) -> list[Mapping[str, Array]]:
    """Every model of these tests: each output is the sum of the inputs and 1."""
    total = sum(call.inputs.values()) + np.float32(1)
    return [dict.fromkeys(call.step.step.outputs, np.asarray(total))]


ONE = {"X": "FP32 1"}, {"Y": "FP32 1"}
OWN = signature("e", *ONE)


def model(name: str, **terms: Any) -> SignatureTerms:
    return signature(name, {"i": "FP32 1"}, {"o": "FP32 1"}, **terms)


CHEAP = signature("cheap", {"i": "FP32 1"}, {"o": "FP32 1", "c": "FP32 1"})
CONDITIONAL = graph_of(
    OWN,
    ("cheap", {"i": "X"}, {"o": "sure", "c": "confidence"}),
    ("keep", {"i": "sure"}, {"o": "Y"}),
    ("dear", {"i": "X"}, {"o": "Y"}),
    conditions={1: "confidence >= 0.5", 2: "confidence < 0.5"},
)


def cheap_or_dear(call: StepCall) -> list[Mapping[str, Array]]:
    """The cheap model is as sure as its input says; the dear one answers a hundred times that."""
    (value,) = call.inputs.values()
    name = call.step.step.model
    return [{"o": value * 100 if name == "dear" else value, "c": value}]


@pytest.mark.parametrize(
    ("rows", "expected", "calls"),
    [
        ([[0.9], [0.8]], [[0.9], [0.8]], ["cheap", "keep"]),
        ([[0.1]], [[10]], ["cheap", "dear"]),
        ([[0.9], [0.1], [0.7], [0.2]], [[0.9], [10], [0.7], [20]], ["cheap", "keep", "dear"]),
    ],
)
def test_rows_go_where_the_condition_sends_them_and_come_back_in_their_order(
    rows: Any, expected: Any, calls: list[str]
) -> None:
    ensemble = compiled(CONDITIONAL, OWN, CHEAP, model("keep"), model("dear"))
    (answer,), run, made = play(ensemble, {"X": rows}, cheap_or_dear)
    np.testing.assert_allclose(answer["Y"], np.asarray(expected, np.float32), rtol=1e-6)
    assert [call.step.step.model for call in made] == calls
    assert not run.missing()


def test_a_condition_that_is_not_a_number_leaves_the_output_unset() -> None:
    ensemble = compiled(CONDITIONAL, OWN, CHEAP, model("keep"), model("dear"))
    answers, run, _ = play(ensemble, {"X": [[np.nan]]}, cheap_or_dear)
    assert answers == []
    assert run.missing() == NO_ANSWER


def test_a_step_behind_one_that_is_left_out_is_left_out_too() -> None:
    graph = graph_of(
        OWN,
        ("cheap", {"i": "X"}, {"o": "sure", "c": "confidence"}),
        ("dear", {"i": "X"}, {"o": "t"}),
        ("after", {"i": "t"}, {"o": "Y"}),
        ("keep", {"i": "sure"}, {"o": "Y"}),
        conditions={
            1: "confidence < 0.5",
            2: "confidence < 0.5",
            3: "confidence >= 0.5",
        },
    )
    models = (CHEAP, model("dear"), model("after"), model("keep"))
    ensemble = compiled(graph, OWN, *models)
    (answer,), run, made = play(ensemble, {"X": [[0.9]]}, cheap_or_dear)
    assert sorted(run.skips) == [(1, 1), (2, 1)]
    assert [call.step.step.model for call in made] == ["cheap", "keep"]
    assert answer["Y"].tolist() == [[np.float32(0.9)]]


LISTS = signature("e", {"X": "FP32 -1 2"}, {"Y": "FP32 -1 2"}, max_batch=0)


@pytest.mark.parametrize("batched", [False, True])
def test_a_mapped_step_is_called_for_each_element_and_its_answers_are_gathered(
    batched: bool,
) -> None:
    one = signature("m", {"i": "FP32 2"}, {"o": "FP32 2"}, max_batch=4 if batched else 0)
    graph = graph_of(LISTS, ("m", {"i": "X"}, {"o": "Y"}), maps={0: "X"})
    values = np.arange(200, dtype=np.float32).reshape(100, 2)
    answers, _, made = play(compiled(graph, LISTS, one), {"X": values}, add_one, random.Random(7))
    assert len(made) == 100
    assert {call.inputs["i"].shape for call in made} == {(1, 2) if batched else (2,)}
    np.testing.assert_array_equal(answers[0]["Y"], values + 1)


def test_an_empty_list_and_one_too_long_are_refused() -> None:
    one = signature("m", {"i": "FP32 2"}, {"o": "FP32 2"}, max_batch=0)
    graph = graph_of(LISTS, ("m", {"i": "X"}, {"o": "Y"}), maps={0: "X"})
    ensemble = compiled(graph, LISTS, one)
    for count, text in ((0, "which is empty"), (5000, "has 5000 elements; at most 4096")):
        with pytest.raises(EnsembleFailed, match=text):
            play(ensemble, {"X": np.zeros((count, 2))}, add_one)


def test_elements_whose_answers_differ_in_shape_cannot_be_gathered() -> None:
    one = signature("m", {"i": "FP32 2"}, {"o": "FP32 -1"}, max_batch=0)
    own = signature("e", {"X": "FP32 -1 2"}, {"Y": "FP32 -1 -1"}, max_batch=0)
    graph = graph_of(own, ("m", {"i": "X"}, {"o": "Y"}), maps={0: "X"})
    with pytest.raises(EnsembleFailed, match="output 'o' of 'm' differs in shape from element"):
        play(
            compiled(graph, own, one),
            {"X": np.zeros((2, 2))},
            lambda call: [{"o": np.zeros(call.item + 1)}],
        )


STREAM = graph_of(
    OWN,
    ("many", {"i": "X"}, {"o": "t"}),
    ("side", {"i": "X"}, {"o": "u"}),
    ("join", {"i": "t", "k": "u"}, {"o": "Y"}),
)
MANY = model("many", decoupled=True)
JOIN = signature("join", {"i": "FP32 1", "k": "FP32 1"}, {"o": "FP32 1"})


@given(count=st.integers(0, 8), seed=st.integers(0, 1 << 16))
def test_each_response_of_a_decoupled_step_is_answered_once_and_in_its_order(
    count: int, seed: int
) -> None:
    def compute(call: StepCall) -> list[Mapping[str, Array]]:
        if call.step.step.model != "many":
            return add_one(call)
        return [{"o": np.full((1, 1), number, np.float32)} for number in range(count)]

    ensemble = compiled(STREAM, OWN, MANY, model("side"), JOIN)
    answers, run, made = play(ensemble, {"X": [[10]]}, compute, random.Random(seed))
    assert [answer["Y"].item() for answer in answers] == [number + 12 for number in range(count)]
    assert sum(call.step.step.model == "join" for call in made) == count
    assert not run.missing()


@given(limit=st.integers(1, 3), count=st.integers(1, 9), seed=st.integers(0, 1 << 16))
def test_no_step_has_more_calls_at_a_time_than_the_config_allows(
    limit: int, count: int, seed: int
) -> None:
    graph = STREAM._replace(max_inflight=limit)
    ensemble = compiled(graph, OWN, MANY, model("side"), JOIN)
    run = EnsembleRun(plan_for(ensemble, ()), {"X": np.zeros((1, 1), np.float32)})
    running, answered, order = list[StepCall](), 0, random.Random(seed)
    while not run.finished:
        running += run.take()
        for name in ("many", "side", "join"):
            assert sum(call.step.step.model == name for call in running) <= limit
        call = running.pop(order.randrange(len(running)))
        responses = count if call.step.step.model == "many" else 1
        for _ in range(responses):
            run.answered(call, add_one(call)[0])
            answered += len(run.responses())
        run.ended(call)
    assert answered == count


@st.composite
def random_graphs(draw: st.DrawFn) -> tuple[EnsembleGraph, SignatureTerms, list[SignatureTerms]]:
    """A graph without conditions: each step reads some tensors written before it."""
    count = draw(st.integers(1, 8))
    steps, models, written = [], [], ["X"]
    unread = set[str]()
    for number in range(count):
        reads = draw(st.lists(st.sampled_from(written), min_size=1, max_size=3, unique=True))
        unread -= set(reads)
        steps.append((f"m{number}", {f"i{k}": t for k, t in enumerate(reads)}, {"o": f"t{number}"}))
        inputs = {f"i{k}": "FP32 1" for k in range(len(reads))}
        models.append(signature(f"m{number}", inputs, {"o": "FP32 1"}))
        written.append(f"t{number}")
        unread.add(f"t{number}")
    own = signature("e", {"X": "FP32 1"}, dict.fromkeys(sorted(unread), "FP32 1"))
    return graph_of(own, *steps), own, models


@given(
    made=random_graphs(),
    seed=st.integers(0, 1 << 16),
    rows=st.integers(1, 4),
    start_run=st.sampled_from([EnsembleRun, run_of]),
)
def test_any_graph_answers_what_its_steps_compute_in_any_order(
    made: Any, seed: int, rows: int, start_run: Any
) -> None:
    graph, own, models = made
    start = np.arange(rows, dtype=np.float32).reshape(rows, 1)
    expected = {"X": start}
    for step in graph.steps:
        expected[step.outputs["o"]] = sum(expected[t] for t in step.inputs.values()) + np.float32(1)
    (answer,), run, calls = play(
        compiled(graph, own, *models), {"X": start}, add_one, random.Random(seed), (), start_run
    )
    assert isinstance(run, StaticRun if start_run is run_of else EnsembleRun)
    assert answer.keys() == own.outputs.keys()
    for name, array in answer.items():
        np.testing.assert_array_equal(array, expected[name])
    assert sorted(call.step.step.number for call in calls) == list(range(len(graph.steps)))
    assert (run.inflight, run.missing()) == (0, "")


@given(made=random_graphs(), seed=st.integers(0, 1 << 16), data=st.data())
def test_the_cheap_way_calls_the_same_steps_for_the_outputs_that_are_asked_for(
    made: Any, seed: int, data: st.DataObject
) -> None:
    graph, own, models = made
    outputs = st.lists(st.sampled_from(sorted(own.outputs)), min_size=1, unique=True)
    ensemble, requested = compiled(graph, own, *models), tuple(data.draw(outputs))
    (here, _, calls), (there, _, called) = (
        play(ensemble, {"X": [[1]]}, add_one, random.Random(seed), requested, start)
        for start in (run_of, EnsembleRun)
    )
    assert here == there
    numbers = [sorted(call.step.step.number for call in each) for each in (calls, called)]
    assert numbers[0] == numbers[1]


def test_a_request_without_the_optional_input_that_a_step_needs_is_told_so() -> None:
    own = signature("e", {"X": "FP32", "Z": "FP32 optional"}, {"Y": "FP32"})
    two = signature("two", {"i": "FP32", "j": "FP32"}, {"o": "FP32"})
    ensemble = compiled(graph_of(own, ("two", {"i": "X", "j": "Z"}, {"o": "Y"})), own, two)
    answers, run, calls = play(ensemble, {"X": [[1]]}, add_one, start=run_of)
    assert (answers, calls) == ([], [])
    assert run.missing()
    answers, run, calls = play(ensemble, {"X": [[1]], "Z": [[2]]}, add_one, start=run_of)
    assert isinstance(run, StaticRun)
    assert (len(answers), len(calls)) == (1, 1)


def test_a_model_that_leaves_out_an_output_leaves_the_answer_unset_the_cheap_way() -> None:
    graph = graph_of(OWN, ("m", {"i": "X"}, {"o": "between"}), ("n", {"i": "between"}, {"o": "Y"}))
    ensemble = compiled(graph, OWN, model("m"), model("n"))
    answers, run, calls = play(ensemble, {"X": [[1]]}, lambda _: [{}], start=run_of)
    assert isinstance(run, StaticRun)
    assert (answers, len(calls), run.missing()) == ([], 1, NO_ANSWER)


@pytest.mark.parametrize(
    "graph",
    [
        CONDITIONAL,
        graph_of(OWN, ("m", {"i": "X"}, {"o": "Y"}), max_inflight=1),
    ],
)
def test_steps_that_may_not_run_or_must_wait_do_not_take_the_cheap_way(
    graph: EnsembleGraph,
) -> None:
    models = (CHEAP, *map(model, ("keep", "dear", "m")))
    assert plan_for(compiled(graph, OWN, *models), ()).static is None


@given(values=st.lists(st.floats(0, 1, width=32), min_size=1, max_size=8), seed=st.integers(0, 99))
def test_no_row_gets_what_another_rows_branch_wrote(values: list[float], seed: int) -> None:
    ensemble = compiled(CONDITIONAL, OWN, CHEAP, model("keep"), model("dear"))
    rows = np.asarray(values, np.float32).reshape(-1, 1)
    (answer,), _, _ = play(ensemble, {"X": rows}, cheap_or_dear, random.Random(seed))
    expected = np.where(rows >= 0.5, rows, rows * 100)
    np.testing.assert_allclose(answer["Y"], expected, rtol=1e-6)


def kept(branch: Branch) -> int:
    return 1 + sum(map(kept, branch.below))


def test_an_endless_stream_keeps_no_branch_that_has_been_answered() -> None:
    ensemble = compiled(STREAM, OWN, MANY, model("side"), JOIN)
    run = EnsembleRun(plan_for(ensemble, ()), {"X": np.zeros((1, 1), np.float32)})
    many, side = run.take()
    run.answered(side, add_one(side)[0])
    run.ended(side)
    for _ in range(1000):
        run.answered(many, add_one(many)[0])
        (join,) = run.take()
        run.answered(join, add_one(join)[0])
        run.ended(join)
        assert len(run.responses()) == 1
        assert kept(run.root) <= 2


@pytest.mark.parametrize("responses", [0, 2])
def test_a_branch_between_is_dropped_once_its_stream_has_ended(responses: int) -> None:
    graph = graph_of(OWN, ("outer", {"i": "X"}, {"o": "t"}), ("inner", {"i": "t"}, {"o": "Y"}))
    ensemble = compiled(graph, OWN, model("outer", decoupled=True), model("inner", decoupled=True))
    run = EnsembleRun(plan_for(ensemble, ()), {"X": np.zeros((1, 1), np.float32)})
    (outer,) = run.take()
    for _ in range(1000):
        run.answered(outer, add_one(outer)[0])
        (inner,) = run.take()
        for _ in range(responses):
            run.answered(inner, add_one(inner)[0])
            assert len(run.responses()) == 1
        run.ended(inner)
        assert kept(run.root) <= 2


def test_what_waits_behind_a_stream_is_counted_with_its_bytes_until_it_leaves() -> None:
    steps = ("many", {"i": "X"}, {"o": "t"}), ("made", {"i": "t"}, {"o": "u"})
    graph = graph_of(OWN, *steps, ("last", {"i": "u", "x": "X"}, {"o": "Y"}), max_inflight=1)
    last = signature("last", {"i": "FP32", "x": "FP32"}, {"o": "FP32"})
    ensemble = compiled(graph, OWN, model("many", decoupled=True), model("made"), last)
    run = EnsembleRun(plan_for(ensemble, ()), {"X": np.zeros((1, 1000), np.float32)})
    (many,) = run.take()
    for _ in range(3):
        run.answered(many, {"o": np.zeros((1, 100), np.float32)})
    assert run.waiting_behind(0) == (3, 3 * 400)
    (first,) = run.take()
    assert run.waiting_behind(0) == (2, 2 * 400)
    run.answered(first, {"o": np.array([[b"abc"]], object)})
    run.ended(first)
    string_bytes = 8 + ELEMENT_BYTES + 3
    assert run.waiting_behind(0) == (3, 3 * 400 + string_bytes)
    assert len(run.take()) == 2
    assert run.waiting_behind(0) == (1, 400)


def test_what_is_left_out_is_told_with_its_rows() -> None:
    ensemble = compiled(CONDITIONAL, OWN, CHEAP, model("keep"), model("dear"))
    _, run, _ = play(ensemble, {"X": [[0.9], [0.1], [0.7]]}, cheap_or_dear)
    assert sorted(run.skips) == [(1, 1), (2, 2)]
