"""The table of config fields is whole, and what it says is what the checker does."""

import re
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from backends.limits import PARAMETER as EXECUTE_TIMEOUT
from backends.llm.settings import NAMES as OF_LANGUAGE_MODELS
from backends.registry import RUNTIMES
from control.rollouts.plan_keys import PREFIX as ROLLOUT
from docs.write_config import paths, value_type
from docs.write_settings import ROOT
from repository.config.body_rules import KINDS
from repository.config.body_rules import PREFIX as BODY
from repository.config.ensemble_graph import CONDITION, MAP
from repository.config.field_rows import FieldSupport
from repository.config.field_rules import notes
from repository.config.field_table import FIELDS, row_of
from repository.config.parameter_table import PARAMETERS, ParameterKey
from repository.config.positions import Positions
from repository.config.read import parse
from repository.config.validate import validate
from repository.findings import NOTES, Finding
from repository.model import ModelConfig
from server.signature import RAGGED

PATHS = tuple(paths(ModelConfig.DESCRIPTOR))
WHERE = Path("models/m/config.pbtxt")
_NUMBERS = (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)


def of(support: FieldSupport) -> list[str]:
    return [path for path in PATHS if (row := row_of(path)) and row.support is support]


def test_every_field_of_the_descriptor_has_a_row_and_every_row_a_field() -> None:
    assert not [path for path in PATHS if row_of(path) is None]
    assert set(FIELDS) <= set(PATHS)


def test_no_row_is_written_twice_or_hidden_below_one_that_covers_it() -> None:
    for path, row in FIELDS.items():
        above = path.rpartition(".")[0]
        assert not above or not FIELDS[above].covers, path
        assert row.covers or row.support is FieldSupport.HONOURED, path


def test_backends_of_rows_exist() -> None:
    named = {name for row in (*FIELDS.values(), *PARAMETERS) for name in row.backends}
    assert named <= set(RUNTIMES)
    assert set(FIELDS["input.allow_ragged_batch"].backends) == RAGGED


def example(path: str) -> str:
    """A config in text format that gives this field alone."""
    text, descriptor = "", ModelConfig.DESCRIPTOR
    closing = ""
    for step in path.split("."):
        field: Any = descriptor.fields_by_name[step]
        descriptor = value_type(field)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key = field.message_type.fields_by_name["key"]
            shown = "1" if key.cpp_type != FieldDescriptor.CPPTYPE_STRING else '"k"'
            inner = ' value: "v"' if descriptor is None else " value {"
            text += f"{step} {{ key: {shown}{inner} "
            closing = ("" if descriptor is None else " }") + " }" + closing
        elif descriptor is not None:
            text += f"{step} {{ "
            closing = " }" + closing
        else:
            text += f"{step}: {value(field)} "
    return text + closing


def value(field: Any) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.values[-1].name)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return '"x"'
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return "true"
    return "1.5" if field.cpp_type in _NUMBERS else "1"


def checked(text: str, backend: str = "") -> tuple[list[Finding], list[Finding]]:
    config, positions = parse(text, WHERE), Positions(WHERE, text)
    return validate(config, positions), notes(config, positions, backend)


@pytest.mark.parametrize("path", of(FieldSupport.REFUSED))
def test_a_field_that_is_refused_is_a_finding_with_the_remedy_of_the_table(path: str) -> None:
    row = row_of(path)
    assert row is not None
    findings, _ = checked(example(path))
    (found,) = [one for one in findings if one.code == row.code and row.text in one.message]
    assert found.message.endswith(row.instead)
    assert found.line == 1
    assert row.code not in NOTES


@pytest.mark.parametrize("path", of(FieldSupport.IGNORED))
def test_a_field_that_is_ignored_is_a_note_and_refuses_nothing(path: str) -> None:
    row = row_of(path)
    assert row is not None
    findings, noted = checked(example(path))
    assert not findings
    (note,) = noted
    assert note.code == row.code
    assert note.code in NOTES
    assert re.sub(r"\[\d+\]", "", note.message).startswith(f"{row.path} has no effect here: it ")
    assert row.text in note.message
    assert note.message.endswith(row.instead)


@pytest.mark.parametrize("path", of(FieldSupport.HONOURED))
def test_a_field_that_is_honoured_is_not_spoken_of(path: str) -> None:
    findings, noted = checked(example(path))
    assert not noted
    assert not [one for one in findings if one.code in ("E118", "E150")]


@pytest.mark.parametrize(
    ("path", "backend"),
    [(row.path, name) for row in FIELDS.values() for name in RUNTIMES if row.backends],
)
def test_a_field_that_a_backend_does_not_read_is_noted_with_it(path: str, backend: str) -> None:
    _, noted = checked(example(path), backend)
    shown = re.sub(r"\[\d+\]", "", noted[0].message) if noted else ""
    assert shown.startswith(f"{path} ") == (backend not in FIELDS[path].backends)


def with_parameter(key: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "1" }} }}'


def keys(backend: str) -> set[str]:
    return {row.key for row in PARAMETERS if row.backends == (backend,) and is_read(row)}


def is_read(row: ParameterKey) -> bool:
    return row.support is FieldSupport.HONOURED


def test_every_parameter_that_is_read_has_a_row() -> None:
    everywhere = {row.key for row in PARAMETERS if is_read(row) and not row.backends}
    bodies = {f"{BODY}.{kind}" for kind in KINDS}
    residency = {"load_on_demand", "pinned", "warm_hours", "idle_unload_secs"}
    residency |= {"min_residency_secs", "keep_warm_secs"}
    rollouts = {ROLLOUT, f"{ROLLOUT}.*", f"{CONDITION}*", f"{MAP}*"}
    assert everywhere == rollouts | residency | bodies
    assert EXECUTE_TIMEOUT in {row.key for row in PARAMETERS}
    assert keys("llm") == set(OF_LANGUAGE_MODELS)
    read = r'(?:_whole|\b_?parameter)\(version, "([\w.]+)"'
    for backend, file in (
        ("onnxruntime", "onnx/options.py"),
        ("identity", "identity.py"),
    ):
        source = (ROOT / "backends" / file).read_text()
        assert keys(backend) == set(re.findall(read, source)), backend


@pytest.mark.parametrize("row", PARAMETERS, ids=lambda row: row.key)
def test_a_parameter_is_treated_as_its_row_says(row: ParameterKey) -> None:
    text = with_parameter(row.key.replace("*", "hold"))
    for backend in row.backends or RUNTIMES:
        findings, noted = checked(f'backend: "{backend}" {text}', backend)
        if row.support is FieldSupport.REFUSED:
            (found,) = findings
            assert found.code == "E150"
            assert found.message.endswith(row.instead)
        elif row.support is FieldSupport.IGNORED:
            (note,) = noted
            assert note.message.endswith(row.instead)
        else:
            assert not noted


def test_a_parameter_of_another_backend_or_with_a_slip_of_the_pen_is_noted() -> None:
    (other,) = checked(with_parameter("precision"), "onnxruntime")[1]
    assert other.message == "parameter precision has no effect with the backend 'onnxruntime'"
    (slip,) = checked(with_parameter("intra_op_thread_cuont"), "onnxruntime")[1]
    assert slip.message.endswith("did you mean intra_op_thread_count?")
    assert not checked(with_parameter("git_commit"), "onnxruntime")[1]
    assert not checked(with_parameter("precision"), "python")[1]
