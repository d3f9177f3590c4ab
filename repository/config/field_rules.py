"""What the checker says of fields that a config gives and this server does not honour, by
`repository.config.field_table`. Pure."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from repository.config.field_rows import IGNORED_CODE, REFUSED_CODE, ConfigField, FieldSupport
from repository.config.field_table import row_of
from repository.config.finding_report import FindingReport
from repository.config.parameter_table import key_row, without_effect
from repository.config.positions import Positions
from repository.findings import Finding
from repository.model import ModelConfig


class _GivenField(NamedTuple):
    """A field that has a value: where it stands ("input[0].format"), and the table's row."""

    path: str
    row: ConfigField


def _refused(config: ModelConfig, report: FindingReport) -> None:
    for path, row in _given(config, "", ""):
        if row.support is FieldSupport.REFUSED:
            report.add(path, row.code, f"{path} {row.text}; {row.instead}")


def _refused_parameters(config: ModelConfig, report: FindingReport) -> None:
    for key in config.parameters:
        row = key_row(key, config.backend)
        if row is None or row.support is not FieldSupport.REFUSED:
            continue
        if config.backend in ("", *row.backends):
            where = report.positions.keyed("parameters", key)
            report.add(where, REFUSED_CODE, f"parameter {key} {row.text}; {row.instead}")


def notes(config: ModelConfig, positions: Positions, backend: str = "") -> list[Finding]:
    """What `config` gives without an effect: fields and parameters that are ignored, and those that
    `backend` does not read ("" where it is not known). Notes refuse nothing."""
    report = FindingReport(positions, complete=False)
    for path, row in _given(config, "", ""):
        if row.support is FieldSupport.IGNORED:
            text = f"has no effect here: it {row.text}; {row.instead}"
            report.add(path, row.code, f"{path} {text}")
        elif backend and row.backends and backend not in row.backends:
            report.add(path, IGNORED_CODE, f"{path} has no effect with the backend '{backend}'")
    for key in sorted(config.parameters):
        if text := without_effect(key, backend):
            where = positions.keyed("parameters", key)
            report.add(where, IGNORED_CODE, f"parameter {key[:80]} {text}")
    return report.findings


def _given(message: Any, shown: str, plain: str) -> Iterator[_GivenField]:
    """Each field that has a value, but for what is below one whose row covers it."""
    for field, value in message.ListFields():
        path, name = f"{shown}{field.name}", f"{plain}{field.name}"
        row = row_of(name)
        if row is None:
            continue
        yield _GivenField(path, row)
        if field.message_type is None or row.covers:
            continue
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                for key in value:
                    yield from _given(value[key], f"{path}[{key}].", f"{name}.")
        elif field.is_repeated:
            for index, one in enumerate(value):
                yield from _given(one, f"{path}[{index}].", f"{name}.")
        else:
            yield from _given(value, f"{path}.", f"{name}.")


FIELD_RULES = (_refused, _refused_parameters)
