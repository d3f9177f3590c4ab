"""What an ensemble's own config tells of its graph, one mistake at a time."""

from pathlib import Path

import pytest

from repository.config.ensemble_graph import StepCondition, parse_condition, read_graph
from repository.config.positions import Positions
from repository.config.read import parse
from repository.config.validate import validate

WHERE = Path("models/e/config.pbtxt")


def findings(text: str) -> list[str]:
    found = validate(parse(text, WHERE), Positions(WHERE, text), "e")
    return [str(finding).removeprefix(f"{WHERE}:") for finding in found]


def step(model: str, reads: str, writes: str) -> str:
    """`reads`: "a=t b=u"."""

    def entries(kind: str, pairs: str) -> str:
        made = (pair.split("=") for pair in pairs.split())
        return " ".join(f'{kind} {{ key: "{key}" value: "{value}" }}' for key, value in made)

    maps = f"{entries('input_map', reads)} {entries('output_map', writes)}"
    return f'  step {{ model_name: "{model}" model_version: -1 {maps} }}\n'


def ensemble(
    *steps: str, inputs: str = "X", outputs: str = "Y", more: str = "", batch: int = 8
) -> str:
    tensors = "".join(
        f'{kind} {{ name: "{name}" data_type: TYPE_FP32 dims: 1 }}\n'
        for kind, names in (("input", inputs), ("output", outputs))
        for name in names.split()
    )
    return (
        f'platform: "ensemble"\nmax_batch_size: {batch}\n{tensors}'
        f"ensemble_scheduling {{\n{''.join(steps)}}}\n{more}"
    )


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


TWO = (step("a", "i=X", "o=t"), step("b", "i=t", "o=Y"))

CONDITIONAL = (
    step("cheap", "i=X", "o=sure c=confidence"),
    step("keep", "i=sure", "o=Y"),
    step("dear", "i=X", "o=Y"),
)
SPLIT = parameter("condition.keep", "confidence >= 0.9") + parameter(
    "condition.2", "confidence < 0.9"
)

GOOD = {
    "a chain": ensemble(*TWO),
    "a fork and a join": ensemble(
        step("a", "i=X", "o=t"), step("b", "i=X", "o=u"), step("c", "i=t j=u", "o=Y")
    ),
    "a step before the one it needs": ensemble(*reversed(TWO)),
    "one tensor by steps that exclude each other": ensemble(*CONDITIONAL, more=SPLIT),
    "an early exit with a step behind the dear branch": ensemble(
        step("cheap", "i=X", "o=sure c=confidence"),
        step("dear", "i=X", "o=t"),
        step("post", "i=t", "o=Y"),
        step("keep", "i=sure", "o=Y"),
        more=parameter("condition.dear", "confidence < 0.5")
        + parameter("condition.keep", "confidence >= 0.5"),
    ).replace("ZZ", ""),
    "a map": ensemble(*TWO, more=parameter("map.b", "t"), batch=0),
}


def test_an_early_exit_needs_a_condition_on_the_step_that_writes_too() -> None:
    text = GOOD["an early exit with a step behind the dear branch"]
    (found,) = findings(text)
    assert "ensemble tensor 'Y' can appear in an output map only once for ensemble" in found
    assert findings(text + parameter("condition.post", "confidence < 0.5")) == []


@pytest.mark.parametrize("name", [name for name in GOOD if not name.startswith("an early exit")])
def test_a_graph_that_keeps_the_rules_has_no_findings(name: str) -> None:
    assert findings(GOOD[name]) == []


BAD = {
    ensemble(): "5:1 E141 must specify 'step' for ensemble ''",
    ensemble(step("a", "", "o=t"), TWO[1]): "6:3 E141 must specify 'input_map' in step 0 of",
    ensemble(step("", "i=X", "o=t"), TWO[1]): "6:3 E141 must specify 'model_name' in step 0 of",
    'name: "e"\n'
    + ensemble(step("e", "i=X", "o=Y")): "7:10 E141 step 0 of ensemble 'e' is the ens",
    ensemble(
        *TWO, inputs="X unread"
    ): "4:1 E141 ensemble input 'unread' for ensemble '' is not use",
    ensemble(*TWO, outputs="Y unwritten"): "5:1 E141 output 'unwritten' for ensemble '' is not wri",
    ensemble(step("a", "i=X", "o=t p=spare"), TWO[1]): (
        "E141 ensemble tensor 'spare' is unused in ensemble ''"
    ),
    ensemble(TWO[0], step("b", "i=t j=nowhere", "o=Y")): (
        "7:78 E141 ensemble tensor 'nowhere' is not written in ensemble '': no input and no step's"
    ),
    ensemble(*TWO, step("c", "i=X", "o=Y")): (
        "8:78 E141 ensemble tensor 'Y' can appear in an output map only once for ensemble '' step 2"
    ),
    ensemble(*TWO, step("c", "i=t", "o=X")): "once for ensemble '' step 2: it is an input of the",
    ensemble(step("a", "i=X j=u", "o=t"), step("b", "i=t", "o=u p=Y")): (
        "wait for each other in a circle: step 0 (a) → step 1 (b) → step 0 (a)"
    ),
    ensemble(*CONDITIONAL, more=SPLIT.replace("< 0.9", "< 0.8")): (
        "E141 output 'Y' for ensemble '' is not written when confidence is 0.8"
    ),
    ensemble(*CONDITIONAL, more=SPLIT.replace("< 0.9", "<= 0.9")): (
        "E141 ensemble tensor 'Y' is written by steps 1 and 2 of ensemble '' when confidence is 0.9"
    ),
    ensemble(*TWO, more=parameter("condition.b", "t < 1")): (
        "4:1 E141 output 'Y' for ensemble '' is not written when t is 1"
    ),
    ensemble(*TWO, more=parameter("condition.b", "t is 1")): (
        "9:1 E143 parameter condition.b must be TENSOR, one of < <= > >= == !=, and a number, got"
    ),
    ensemble(*TWO, more=parameter("condition.7", "t < 1")): (
        "9:1 E143 parameter condition.7 is about no step; name one: 0 to 1, or the model of exactly"
    ),
    ensemble(*TWO, more=parameter("condition.b", "t < 1") + parameter("condition.1", "t < 1")): (
        "E143 parameter condition.b: step 1 has a condition already"
    ),
    ensemble(*TWO, more=parameter("map.b", "X"), batch=0): (
        "9:1 E143 parameter map.b must name a tensor of the step's input_map (t), got 'X'"
    ),
    ensemble(*TWO, more=parameter("map.b", "t")): (
        "9:1 E143 parameter map.b needs an ensemble with max_batch_size 0: the lists of rows differ"
    ),
}


@pytest.mark.parametrize(("text", "expected"), BAD.items())
def test_a_mistake_is_one_finding_where_it_stands(text: str, expected: str) -> None:
    (found,) = findings(text)
    assert expected in found


def test_more_cases_than_are_gone_through_are_refused() -> None:
    steps = [step("a", "i=X", " ".join(f"o{n}=t{n}" for n in range(12)))]
    steps += [step(f"b{n}", f"i=t{n}", "o=Y") for n in range(12)]
    more = "".join(parameter(f"condition.b{n}", f"t{n} < {n}") for n in range(12))
    (found,) = findings(ensemble(*steps, more=more))
    assert "the conditions of ensemble '' have more than 4096 cases" in found


def test_a_graph_says_what_each_step_needs_and_which_models_it_calls() -> None:
    text = ensemble(*CONDITIONAL, more=SPLIT).replace("model_version: -1", "model_version: 3", 1)
    graph = read_graph(parse(text, WHERE))
    assert graph.callees() == (("cheap", "3"), ("keep", ""), ("dear", ""))
    assert graph.steps[2].needs() == ("confidence", "X")
    assert graph.steps[1].condition == StepCondition("confidence", ">=", 0.9)


@pytest.mark.parametrize("text", ["", "t <", "< 3", "t = 3", "t < x", "t < 1.2.3", "a b < 3"])
def test_what_is_no_condition_is_none(text: str) -> None:
    assert parse_condition(text) is None
