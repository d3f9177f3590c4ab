"""Rules for an ensemble's graph, as far as its own config tells: no model need be known. Pure.

Source of the texts: Triton's `ensemble_utils.cc`. `schedulers.ensembles.policy.compile` holds the
graph against the steps' models when these are loaded.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise, product

from repository.config.ensemble_graph import (
    CONDITION,
    MAP,
    EnsembleGraph,
    EnsembleStep,
    parse_condition,
    read_graph,
    step_of,
)
from repository.config.finding_report import FindingReport
from repository.model import ModelConfig

GRAPH_CODE, FIT_CODE, TERM_CODE = "E141", "E142", "E143"

MOST_STEPS = 256
MOST_CASES = 4096
"""Combinations of what conditions may say that are gone through when a config is checked."""


def ensemble_graph(config: ModelConfig, report: FindingReport) -> None:
    """The rule: of an ensemble, everything below; of other models, that they have no such terms."""
    if not config.HasField("ensemble_scheduling"):
        return
    steps = config.ensemble_scheduling.step
    if not steps:
        problem = f"must specify 'step' for ensemble '{config.name}'"
        report.add("ensemble_scheduling", GRAPH_CODE, problem)
        return
    if len(steps) > MOST_STEPS:
        problem = f"an ensemble has at most {MOST_STEPS} steps, got {len(steps)}"
        report.add("ensemble_scheduling", GRAPH_CODE, problem)
        return
    before = len(report.findings)
    graph = read_graph(config)
    _complete(config, report)
    _terms(config, report)
    if len(report.findings) > before:
        return
    _flow(graph, report)
    if len(report.findings) == before:
        _cases(graph, report)


def _complete(config: ModelConfig, report: FindingReport) -> None:
    for number, step in enumerate(config.ensemble_scheduling.step):
        path = f"ensemble_scheduling.step[{number}]"
        for field in ("model_name", "input_map", "output_map"):
            if not getattr(step, field):
                text = f"must specify '{field}' in step {number} of ensemble '{config.name}'"
                report.add(path, GRAPH_CODE, text)
        if step.model_name == config.name and config.name:
            text = f"step {number} of ensemble '{config.name}' is the ensemble itself"
            report.add(f"{path}.model_name", GRAPH_CODE, text)
        if step.model_version < -1 or (
            step.model_version == 0 and report.positions.given(f"{path}.model_version")
        ):
            text = f"{path}.model_version must be a version, or -1 for the newest"
            report.add(f"{path}.model_version", GRAPH_CODE, f"{text}, got {step.model_version}")


def _terms(config: ModelConfig, report: FindingReport) -> None:
    """Conditions and maps that cannot be read, or are about no step."""
    names = [step.model_name for step in config.ensemble_scheduling.step]
    seen: set[tuple[str, int]] = set()
    for key in sorted(config.parameters):
        prefix = next((one for one in (CONDITION, MAP) if key.startswith(one)), "")
        if not prefix:
            continue
        where, value = report.positions.keyed("parameters", key), config.parameters[key]
        number = step_of(key, names)
        if number is None:
            accepted = f"0 to {len(names) - 1}, or the model of exactly one step"
            report.add(where, TERM_CODE, f"parameter {key} is about no step; name one: {accepted}")
        elif (prefix, number) in seen:
            report.add(
                where, TERM_CODE, f"parameter {key}: step {number} has a {prefix[:-1]} already"
            )
        elif prefix == CONDITION and parse_condition(value.string_value) is None:
            accepted = "must be TENSOR, one of < <= > >= == !=, and a number"
            report.add(where, TERM_CODE, f"parameter {key} {accepted}, got '{value.string_value}'")
        elif prefix == MAP:
            _map(config, number, key, where, report)
        seen.add((prefix, number if number is not None else -1))


def _map(config: ModelConfig, number: int, key: str, where: str, report: FindingReport) -> None:
    tensor = config.parameters[key].string_value.strip()
    inputs = sorted(set(config.ensemble_scheduling.step[number].input_map.values()))
    if tensor not in inputs:
        accepted = f"must name a tensor of the step's input_map ({', '.join(inputs)})"
        report.add(where, TERM_CODE, f"parameter {key} {accepted}, got '{tensor}'")
    if config.max_batch_size:
        problem = "needs an ensemble with max_batch_size 0: the lists of rows differ in length"
        report.add(where, TERM_CODE, f"parameter {key} {problem}; got {config.max_batch_size}")


def _flow(graph: EnsembleGraph, report: FindingReport) -> None:
    """Each tensor is written once, read, and written before it is read."""
    producers = graph.producers()
    _read(graph, report)
    for tensor, steps in producers.items():
        _written_once(graph, tensor, steps, report)
    ready = _reachable(graph)
    written = {*producers, *graph.inputs}
    before = len(report.findings)
    for step in graph.steps:
        _unwritten(graph, step, written, report)
    if len(report.findings) > before:
        return
    for step in graph.steps:
        if not ready.issuperset(step.needs()):
            _complain_of_circle(graph, step, ready, report)
            return
    for index, name in enumerate(graph.outputs):
        if name not in ready:
            text = f"output '{name}' for ensemble '{graph.name}' is not written"
            report.add(f"output[{index}]", GRAPH_CODE, text)


def _read(graph: EnsembleGraph, report: FindingReport) -> None:
    """Complain of what nobody reads."""
    read = {*graph.outputs, *(tensor for step in graph.steps for tensor in step.needs())}
    for index, name in enumerate(graph.inputs):
        if name not in read:
            text = f"ensemble input '{name}' for ensemble '{graph.name}' is not used"
            report.add(f"input[{index}]", GRAPH_CODE, text)
    for tensor, steps in graph.producers().items():
        if tensor not in read:
            text = f"ensemble tensor '{tensor}' is unused in ensemble '{graph.name}'"
            report.add(_place(report, steps[0], "output_map", tensor), GRAPH_CODE, text)


def _written_once(
    graph: EnsembleGraph, tensor: str, steps: list[EnsembleStep], report: FindingReport
) -> None:
    once = (
        f"ensemble tensor '{tensor}' can appear in an output map only once for ensemble "
        f"'{graph.name}' step {steps[-1].number}"
    )
    where = _place(report, steps[-1], "output_map", tensor)
    if tensor in graph.inputs:
        report.add(where, GRAPH_CODE, f"{once}: it is an input of the ensemble")
    elif len({step.number for step in steps}) < len(steps):
        report.add(where, GRAPH_CODE, f"{once}: two outputs of one step are mapped to it")
    elif len(steps) > 1 and any(step.condition is None for step in steps):
        report.add(where, GRAPH_CODE, f"{once}, but for steps whose conditions exclude each other")


def _reachable(graph: EnsembleGraph) -> set[str]:
    """The tensors that are written once everything that can run has run."""
    ready = set(graph.inputs)
    while True:
        more = {
            tensor
            for step in graph.steps
            if ready.issuperset(step.needs())
            for tensor in step.outputs.values()
        } - ready
        if not more:
            return ready
        ready |= more


def _unwritten(
    graph: EnsembleGraph, step: EnsembleStep, written: set[str], report: FindingReport
) -> None:
    """Complain of tensors that the step needs and nobody writes."""
    for tensor in step.needs():
        if tensor in written:
            continue
        text = f"ensemble tensor '{tensor}' is not written in ensemble '{graph.name}'"
        where = _place(report, step, "input_map", tensor)
        report.add(where, GRAPH_CODE, f"{text}: no input and no step's output has this name")


def _complain_of_circle(
    graph: EnsembleGraph, step: EnsembleStep, ready: set[str], report: FindingReport
) -> None:
    circle = " → ".join(_circle(graph, step, ready))
    text = f"the steps of ensemble '{graph.name}' wait for each other in a circle: {circle}"
    report.add(f"ensemble_scheduling.step[{step.number}]", GRAPH_CODE, text)


def _circle(graph: EnsembleGraph, step: EnsembleStep, ready: set[str]) -> list[str]:
    """Steps that wait for each other, beginning at the first met twice."""
    producers, seen = graph.producers(), list[EnsembleStep]()
    while step not in seen:
        seen.append(step)
        waits = [t for t in step.needs() if t not in ready and t in producers]
        if not waits:
            break
        step = producers[waits[0]][0]
    first = seen.index(step)
    return [f"step {one.number} ({one.model})" for one in (*seen[first:], step)]


def _cases(graph: EnsembleGraph, report: FindingReport) -> None:
    """Whatever conditions say, one step at most writes a tensor, and each output is written."""
    values = _values(graph)
    count = 1
    for each in values.values():
        count *= len(each)
    if count > MOST_CASES:
        text = f"the conditions of ensemble '{graph.name}' have more than {MOST_CASES} cases"
        report.add("parameters", TERM_CODE, f"{text}; use fewer, or a python model that decides")
        return
    for case in product(*values.values()):
        if _case(graph, dict(zip(values, case, strict=True)), report):
            return


def _values(graph: EnsembleGraph) -> dict[str, list[float]]:
    """For each tensor of a condition: its bounds, and a number between each two."""
    bounds: dict[str, set[float]] = {}
    for step in graph.steps:
        if step.condition is not None:
            bounds.setdefault(step.condition.tensor, set()).add(step.condition.bound)
    found = {}
    for tensor, each in bounds.items():
        ordered = sorted(each)
        between = [(a + b) / 2 for a, b in pairwise(ordered)]
        found[tensor] = [ordered[0] - 1, *ordered, *between, ordered[-1] + 1]
    return found


def _case(graph: EnsembleGraph, case: Mapping[str, float], report: FindingReport) -> bool:
    """Complain of the first thing wrong in this case; False if there is nothing."""
    shown = " and ".join(f"{tensor} is {value:g}" for tensor, value in case.items())
    by: dict[str, EnsembleStep] = {}
    for step in _running(graph, case):
        for tensor in step.outputs.values():
            if tensor in by:
                text = (
                    f"ensemble tensor '{tensor}' is written by steps {by[tensor].number} and "
                    f"{step.number} of ensemble '{graph.name}' when {shown}: their conditions must "
                    "exclude each other"
                )
                report.add(_place(report, step, "output_map", tensor), GRAPH_CODE, text)
                return True
            by[tensor] = step
    for index, output in enumerate(graph.outputs):
        if output not in by and output not in graph.inputs:
            text = f"output '{output}' for ensemble '{graph.name}' is not written when {shown}"
            report.add(f"output[{index}]", GRAPH_CODE, text)
            return True
    return False


def _running(graph: EnsembleGraph, case: Mapping[str, float]) -> Iterator[EnsembleStep]:
    """The steps that run when condition tensors have these values."""
    ready, waiting = set(graph.inputs), list(graph.steps)
    while True:
        able = [
            step
            for step in waiting
            if ready.issuperset(step.needs())
            and (step.condition is None or step.condition.holds(case[step.condition.tensor]))
        ]
        if not able:
            return
        for step in able:
            waiting.remove(step)
            ready.update(step.outputs.values())
            yield step


def _place(report: FindingReport, step: EnsembleStep, field: str, tensor: str) -> str:
    """Where the map entry of a tensor stands; the condition's, if only that reads it."""
    pairs = step.inputs if field == "input_map" else step.outputs
    path = f"ensemble_scheduling.step[{step.number}].{field}"
    key = next((key for key, value in pairs.items() if value == tensor), None)
    return path if key is None else report.positions.keyed(path, key)
