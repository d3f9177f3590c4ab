"""Rules for `sequence_batching`: control inputs, states, strategies, what it excludes. Pure.

Source of the fields and their rules: Triton's `ModelSequenceBatching`.
"""

from collections.abc import Sequence
from typing import Any

from tritonclient.grpc import model_config_pb2 as pb

from repository.config.finding_report import FindingReport
from repository.config.type_names import NAMES
from repository.model import ModelConfig

MOST_CANDIDATES = 1_000_000
MOST_DELAY_US = 86_400_000_000
MOST_STATES = 1024
_KIND = pb.ModelSequenceBatching.Control.Kind
_PAIRS = ("int32_false_true", "fp32_false_true", "bool_false_true")
_KEY_TYPES = (pb.TYPE_UINT64, pb.TYPE_INT64, pb.TYPE_UINT32, pb.TYPE_INT32, pb.TYPE_STRING)
_CORRID = pb.ModelSequenceBatching.Control.CONTROL_SEQUENCE_CORRID


def _controls(config: ModelConfig, report: FindingReport) -> None:
    taken = {tensor.name: "an input" for tensor in config.input}
    kinds: dict[int, str] = {}
    for index, control_input in enumerate(config.sequence_batching.control_input):
        path = f"sequence_batching.control_input[{index}]"
        name = control_input.name
        if not name:
            report.add(path, "E126", f"{path} needs the name of an input of the model")
        elif name in taken:
            report.add(
                f"{path}.name",
                "E126",
                f"{path}.name '{name}' is the name of {taken[name]}; clients do not send controls, "
                "so leave it out there",
            )
        taken[name] = "another control"
        if len(control_input.control) != 1:
            count = len(control_input.control)
            report.add(path, "E126", f"{path} needs exactly one control, got {count}")
        for place, control in enumerate(control_input.control):
            where = f"{path}.control[{place}]"
            _control(where, control, report)
            if control.kind in kinds:
                kind = _KIND.Name(control.kind)
                problem = f"{where}.kind {kind} is that of '{kinds[control.kind]}' already"
                report.add(f"{where}.kind", "E126", problem)
            kinds.setdefault(control.kind, name)


def _control(where: str, control: Any, report: FindingReport) -> None:
    kind = _KIND.Name(control.kind) if control.kind in _KIND.values() else str(control.kind)
    given = [pair for pair in _PAIRS if len(getattr(control, pair))]
    if control.kind == _CORRID:
        if given:
            report.add(where, "E126", f"{where} is {kind}, which takes data_type, not {given[0]}")
        if control.data_type not in _KEY_TYPES:
            names = ", ".join(pb.DataType.Name(one) for one in _KEY_TYPES)
            got = pb.DataType.Name(control.data_type)
            problem = f"{where}.data_type must be one of {names} for {kind}, got {got}"
            report.add(f"{where}.data_type", "E126", problem)
        return
    if control.data_type != pb.TYPE_INVALID:
        problem = f"{where}.data_type is for CONTROL_SEQUENCE_CORRID; give {kind} one of"
        report.add(f"{where}.data_type", "E126", f"{problem} {', '.join(_PAIRS)}")
    if len(given) != 1:
        got = ", ".join(given) or "none"
        report.add(where, "E126", f"{where} ({kind}) needs one of {', '.join(_PAIRS)}, got {got}")
        return
    values = getattr(control, given[0])
    if len(values) != 2:
        problem = f"{where}.{given[0]} needs two values, for false and for true, got {len(values)}"
        report.add(f"{where}.{given[0]}", "E126", problem)


def _states(config: ModelConfig, report: FindingReport) -> None:
    states = config.sequence_batching.state
    if len(states) > MOST_STATES:
        report.add(
            "sequence_batching.state",
            "E127",
            f"sequence_batching.state has {len(states)} states; at most {MOST_STATES} are kept",
        )
        return
    taken = {tensor.name for tensor in config.input}
    taken.update(control.name for control in config.sequence_batching.control_input)
    outputs = {tensor.name: tensor for tensor in config.output}
    produced: set[str] = set()
    for index, state in enumerate(states):
        path = f"sequence_batching.state[{index}]"
        for field in ("input_name", "output_name"):
            if not getattr(state, field):
                report.add(path, "E127", f"{path} needs {field}")
        if state.input_name in taken:
            problem = f"{path}.input_name '{state.input_name}' is the name of another input"
            report.add(f"{path}.input_name", "E127", f"{problem}; clients do not send states")
        if state.output_name in produced:
            problem = f"{path}.output_name '{state.output_name}' is that of another state"
            report.add(f"{path}.output_name", "E127", problem)
        taken.add(state.input_name)
        produced.add(state.output_name)
        _state_type(path, state, report)
        output = outputs.get(state.output_name)
        if output is not None and output.data_type not in (0, state.data_type):
            got, want = NAMES.get(output.data_type), NAMES.get(state.data_type)
            problem = f"{path}.data_type is {want}, but output '{state.output_name}' is {got}"
            report.add(f"{path}.data_type", "E127", problem)
        _initial_state(path, state, report)


def _state_type(path: str, state: Any, report: FindingReport) -> None:
    if state.data_type not in NAMES:
        report.add(path, "E127", f"{path} needs a data_type")
    if not state.dims:
        report.add(path, "E127", f"{path} needs dims; -1 for any size")
    _sizes(f"{path}.dims", state.dims, report)


def _sizes(path: str, dims: Sequence[int], report: FindingReport) -> None:
    for place, dim in enumerate(dims):
        if dim < 1 and dim != -1:
            report.add(f"{path}[{place}]", "E127", f"{path}[{place}] must be ≥ 1 or -1, got {dim}")


def _initial_state(path: str, state: Any, report: FindingReport) -> None:
    if len(state.initial_state) > 1:
        count = len(state.initial_state)
        report.add(path, "E127", f"{path} has {count} initial states; give one")
    for index, initial in enumerate(state.initial_state):
        where = f"{path}.initial_state[{index}]"
        if initial.WhichOneof("state_data") is None:
            report.add(where, "E127", f"{where} needs zero_data: true or a data_file")
        if initial.data_type not in (0, state.data_type):
            got, want = pb.DataType.Name(initial.data_type), pb.DataType.Name(state.data_type)
            problem = f"{where}.data_type is {got}, but the state is {want}"
            report.add(f"{where}.data_type", "E127", problem)
        dims, fixed = list(initial.dims), list(state.dims)
        fits = len(dims) == len(fixed) and all(
            want in (-1, got) and got > 0 for got, want in zip(dims, fixed, strict=True)
        )
        if dims and not fits:
            problem = f"{where}.dims are {dims}, which do not fit the state's {fixed}"
            report.add(f"{where}.dims", "E127", f"{problem}; each must be ≥ 1")


def _strategy(config: ModelConfig, report: FindingReport) -> None:
    sequences = config.sequence_batching
    if sequences.HasField("direct"):
        share = sequences.direct.minimum_slot_utilization
        path = "sequence_batching.direct.minimum_slot_utilization"
        if not 0.0 <= share <= 1.0:
            report.add(path, "E128", f"{path} must be from 0 to 1, got {share:g}")
        _delay("direct", sequences.direct.max_queue_delay_microseconds, report)
    if sequences.HasField("oldest"):
        _oldest(config, sequences.oldest, report)
    if sequences.max_sequence_idle_microseconds > MOST_DELAY_US:
        path = "sequence_batching.max_sequence_idle_microseconds"
        problem = f"{path} is {sequences.max_sequence_idle_microseconds}, more than"
        report.add(path, "E128", f"{problem} {MOST_DELAY_US} microseconds, one day")


def _oldest(config: ModelConfig, oldest: Any, report: FindingReport) -> None:
    path = "sequence_batching.oldest"
    if not 1 <= oldest.max_candidate_sequences <= MOST_CANDIDATES:
        field = f"{path}.max_candidate_sequences"
        problem = f"must be from 1 to {MOST_CANDIDATES}, got {oldest.max_candidate_sequences}"
        report.add(field, "E128", f"{field} {problem}")
    known = report.batch_size_known(config)
    for index, size in enumerate(oldest.preferred_batch_size):
        field = f"{path}.preferred_batch_size[{index}]"
        if size < 1 or (known and size > max(1, config.max_batch_size)):
            problem = f"must be from 1 to max_batch_size {config.max_batch_size}, got {size}"
            report.add(field, "E128", f"{field} {problem}")
    _delay("oldest", oldest.max_queue_delay_microseconds, report)


def _delay(strategy: str, delay_us: int, report: FindingReport) -> None:
    if delay_us > MOST_DELAY_US:
        path = f"sequence_batching.{strategy}.max_queue_delay_microseconds"
        problem = f"{path} is {delay_us}, more than {MOST_DELAY_US} microseconds, one day"
        report.add(path, "E128", problem)


def _exclusions(config: ModelConfig, report: FindingReport) -> None:
    sequences = config.sequence_batching
    if sequences.state and config.model_transaction_policy.decoupled:
        report.add(
            "sequence_batching.state",
            "E129",
            "sequence_batching.state excludes model_transaction_policy.decoupled: which of several "
            "responses would be the next state? Keep the state in the model, by CORRID",
        )
    if config.batch_input or config.batch_output or _strings_together(config):
        report.add(
            "sequence_batching",
            "E129",
            "sequence_batching excludes batch_input, batch_output and, but for python and identity "
            "models, allow_ragged_batch: a sequence has one row of the batch",
        )
    if config.platform == "ensemble":
        problem = "sequence_batching has no meaning for an ensemble; its steps have their own"
        report.add("sequence_batching", "E140", problem)


def _strings_together(config: ModelConfig) -> bool:
    ragged = any(tensor.allow_ragged_batch for tensor in config.input)
    return ragged and config.backend not in ("", "python", "identity")


def sequence_rules(config: ModelConfig, report: FindingReport) -> None:
    """Every rule of `sequence_batching`."""
    if config.HasField("sequence_batching"):
        for rule in (_controls, _states, _strategy, _exclusions):
            rule(config, report)
