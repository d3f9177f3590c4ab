"""A graph held against the models of its steps: what does not fit, and what follows."""

from typing import Any

import pytest

from repository.config.ensemble_graph import EnsembleGraph
from schedulers.ensembles.policy.compile import CompiledEnsemble, Misfit, compile_ensemble
from schedulers.ensembles.policy.request_plan import MOST_AT_A_TIME, plan_for
from support.ensembles import SignatureTerms, TensorTerms, graph_of, signature

OWN = signature("e", {"X": "FP32 4"}, {"Y": "FP32 4"})
A = signature("a", {"i": "FP32 4"}, {"o": "FP32 4"})
B = signature("b", {"i": "FP32 4"}, {"o": "FP32 4"})
CHAIN = (("a", {"i": "X"}, {"o": "t"}), ("b", {"i": "t"}, {"o": "Y"}))


def compiled(
    graph: EnsembleGraph, own: SignatureTerms, *models: SignatureTerms
) -> CompiledEnsemble | list[Misfit]:
    return compile_ensemble(graph, own, {(one.model, ""): (one,) for one in models})


def fitting(graph: EnsembleGraph, own: SignatureTerms, *models: SignatureTerms) -> CompiledEnsemble:
    found = compiled(graph, own, *models)
    assert isinstance(found, CompiledEnsemble), found
    return found


MISFITS: dict[str, tuple[Any, str]] = {
    "an input that does not exist": (
        {"a": signature("a", {"other": "FP32 4 optional"}, {"o": "FP32 4"})},
        "in ensemble e, ensemble tensor X is mapping to non-existing input i in model a",
    ),
    "an input that is not mapped": (
        {"a": signature("a", {"i": "FP32 4", "j": "FP32 4"}, {"o": "FP32 4"})},
        "in ensemble e, input j in model a is not mapped to any ensemble tensors",
    ),
    "an output that does not exist": (
        {"a": signature("a", {"i": "FP32 4"}, {"p": "FP32 4"})},
        "in ensemble e, ensemble tensor t is mapped from non-existing output o in model a",
    ),
    "another type": (
        {"b": signature("b", {"i": "INT32 4"}, {"o": "FP32 4"})},
        "in ensemble e, ensemble tensor t: inconsistent data type: TYPE_FP32 is inferred from "
        "model a while TYPE_INT32 is inferred from model b",
    ),
    "another shape": (
        {"b": signature("b", {"i": "FP32 5"}, {"o": "FP32 4"})},
        "in ensemble e, ensemble tensor t: inconsistent shape: [-1,4] is inferred from model a "
        "while [-1,5] is inferred from model b",
    ),
    "another shape of the ensemble's own": (
        {"a": signature("a", {"i": "FP32 3"}, {"o": "FP32 4"})},
        "ensemble tensor X: inconsistent shape: [-1,4] is inferred from model e while [-1,3]",
    ),
    "a smaller batch": (
        {"a": signature("a", {"i": "FP32 4"}, {"o": "FP32 4"}, max_batch=2)},
        "ensemble e allows maximum batch size 8, but it contains model a which only allows maximum "
        "batch size to be 2",
    ),
}


@pytest.mark.parametrize("case", MISFITS)
def test_a_step_that_does_not_fit_its_model_is_one_misfit(case: str) -> None:
    models, text = MISFITS[case]
    found = compiled(graph_of(OWN, *CHAIN), OWN, *({"a": A, "b": B} | models).values())
    assert isinstance(found, list)
    (misfit,) = found
    assert text in misfit.message
    assert misfit.path.startswith("ensemble_scheduling.step[")


def test_a_model_without_batches_fits_by_its_full_shape() -> None:
    whole = signature("b", {"i": "FP32 -1 4"}, {"o": "FP32 -1 4"}, max_batch=0)
    assert not fitting(graph_of(OWN, *CHAIN), OWN, A, whole).decoupled


def test_any_size_fits_and_an_optional_input_need_not_be_mapped() -> None:
    loose = signature("a", {"i": "FP32 -1", "j": "FP32 4 optional"}, {"o": "FP32 -1"})
    fitting(graph_of(OWN, *CHAIN), OWN, loose, B)


def test_every_arm_of_a_route_has_to_fit() -> None:
    other = signature("a2", {"i": "INT8 4"}, {"o": "FP32 4"})
    found = compile_ensemble(graph_of(OWN, *CHAIN), OWN, {("a", ""): (A, other), ("b", ""): (B,)})
    assert isinstance(found, list)
    assert "TYPE_INT8 is inferred from model a2" in found[0].message


def test_a_condition_needs_one_number_for_each_row() -> None:
    graph = graph_of(OWN, *CHAIN, conditions={1: "t < 1"})
    found = compiled(graph, OWN, A, B)
    assert isinstance(found, list)
    assert found[0].message == (
        "the condition 't < 1' of step 1 needs one number for each row, and t is FP32 [-1,4]"
    )


def test_labels_come_from_the_model_that_writes_the_output() -> None:
    labelled = B._replace(outputs={"o": TensorTerms("FP32", (4,), (-1, 4), labels=("cat", "dog"))})
    assert fitting(graph_of(OWN, *CHAIN), OWN, A, labelled).labels == {"Y": ("cat", "dog")}


DECOUPLED = signature("d", {"i": "FP32 4"}, {"o": "FP32 4"}, decoupled=True)


def test_an_ensemble_is_decoupled_where_a_step_behind_its_outputs_is() -> None:
    graph = graph_of(OWN, ("d", {"i": "X"}, {"o": "t"}), CHAIN[1])
    found = fitting(graph, OWN, DECOUPLED, B)
    assert found.decoupled
    assert [one.level for one in found.steps] == [-1, 0]


def test_nothing_may_join_the_responses_of_two_decoupled_steps() -> None:
    join = signature("j", {"i": "FP32 4", "k": "FP32 4"}, {"o": "FP32 4"})
    other = signature("d2", {"i": "FP32 4"}, {"o": "FP32 4"}, decoupled=True)
    graph = graph_of(
        OWN,
        ("d", {"i": "X"}, {"o": "t"}),
        ("d2", {"i": "X"}, {"o": "u"}),
        ("j", {"i": "t", "k": "u"}, {"o": "Y"}),
    )
    found = compiled(graph, OWN, DECOUPLED, other, join)
    assert isinstance(found, list)
    assert found[0].message == (
        "in ensemble e, step of model 'j' receives inputs originated from different decoupled "
        "models"
    )


def test_outputs_of_two_decoupled_steps_do_not_belong_together() -> None:
    own = signature("e", {"X": "FP32 4"}, {"Y": "FP32 4", "Z": "FP32 4"})
    other = signature("d2", {"i": "FP32 4"}, {"o": "FP32 4"}, decoupled=True)
    graph = graph_of(own, ("d", {"i": "X"}, {"o": "Y"}), ("d2", {"i": "X"}, {"o": "Z"}))
    found = compiled(graph, own, DECOUPLED, other)
    assert isinstance(found, list)
    assert "the outputs originate from different decoupled models, 'd' and 'd2'" in found[0].message


def test_a_request_runs_only_what_its_outputs_need() -> None:
    own = signature("e", {"X": "FP32 4"}, {"Y": "FP32 4", "Z": "FP32 4"})
    graph = graph_of(own, *CHAIN, ("c", {"i": "t"}, {"o": "Z"}))
    c = signature("c", {"i": "FP32 4"}, {"o": "FP32 4", "p": "FP32 4"})
    ensemble = fitting(graph, own, A, B, c)
    assert [one.step.model for one in plan_for(ensemble, ()).steps] == ["a", "b", "c"]
    plan = plan_for(ensemble, ("Z",))
    assert [one.step.model for one in plan.steps] == ["a", "c"]
    assert plan.callees == (("a", ""), ("c", ""))
    assert plan.asked == {0: (), 2: ("o",)}


def test_a_mapped_step_is_bounded_unless_the_config_says_otherwise() -> None:
    own = signature("e", {"X": "FP32 -1 4"}, {"Y": "FP32 -1 4"}, max_batch=0)
    one = signature("a", {"i": "FP32 4"}, {"o": "FP32 4"}, max_batch=0)
    for max_inflight, bound in ((0, MOST_AT_A_TIME), (3, 3)):
        graph = graph_of(
            own, ("a", {"i": "X"}, {"o": "Y"}), maps={0: "X"}, max_inflight=max_inflight
        )
        assert plan_for(fitting(graph, own, one), ()).limits == {0: bound}
