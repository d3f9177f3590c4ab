"""Rules for the built-in steps' parameters, and for `request_body.*`. Pure."""

from difflib import get_close_matches

from repository.config.finding_report import FindingReport
from repository.config.parameter_table import key_row
from repository.config.step_parameters import STEPS, keys_of, read_value
from repository.model import ModelConfig

_CODE = "E161"


def _step_parameters(config: ModelConfig, report: FindingReport) -> None:
    if config.backend not in STEPS:
        return
    rows = keys_of(config.backend)
    for key in sorted(config.parameters):
        where = report.positions.keyed("parameters", key)
        row = rows.get(key)
        if row is None:
            if not _is_read(key, config.backend):
                near = get_close_matches(key, rows, n=1, cutoff=0.6)
                hint = f"did you mean {near[0]}?" if near else f"its keys are {', '.join(rows)}"
                report.add(
                    where,
                    _CODE,
                    f"parameter {key[:80]} is not one of the backend '{config.backend}'; {hint}",
                )
            continue
        try:
            read_value(row, config.parameters[key].string_value)
        except ValueError as error:
            report.add(where, _CODE, str(error))


def _is_read(key: str, backend: str) -> bool:
    """Whether a key is one that models of every kind may have."""
    row = key_row(key, backend)
    return row is not None and (not row.backends or backend in row.backends)


STEP_RULES = (_step_parameters,)
