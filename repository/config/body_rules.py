"""Rules for `request_body.image` and `request_body.text`: which input a REST body is. Pure."""

from collections.abc import Iterator
from difflib import get_close_matches

from repository.config.finding_report import FindingReport
from repository.model import ModelConfig

PREFIX = "request_body"
KINDS = ("image", "text")
_CODE = "E162"
_TYPE_STRING = 13


def body_inputs(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """(kind of body, name of the input) of each that the config declares."""
    for kind in KINDS:
        if (key := f"{PREFIX}.{kind}") in config.parameters:
            yield kind, str(config.parameters[key].string_value)


def _known_kinds(config: ModelConfig, report: FindingReport) -> None:
    keys = [f"{PREFIX}.{kind}" for kind in KINDS]
    for key in config.parameters:
        if key.startswith(f"{PREFIX}.") and key not in keys:  # `request_body_limit` is a script's
            near = (get_close_matches(key, keys, n=1, cutoff=0.6) or keys)[0]
            where = report.positions.keyed("parameters", key)
            report.add(where, _CODE, f"parameter {key[:80]} is unknown; did you mean {near}?")


def _bodies(config: ModelConfig, report: FindingReport) -> None:
    for kind, name in body_inputs(config):
        if problem := _problem(config, name, report.complete):
            key = f"{PREFIX}.{kind}"
            report.add(
                report.positions.keyed("parameters", key), _CODE, f"parameter {key} {problem}"
            )


def _problem(config: ModelConfig, name: str, complete: bool) -> str:
    found = next((tensor for tensor in config.input if tensor.name == name), None)
    if found is None:
        if not config.input and not complete:  # its model may know it
            return ""
        names = ", ".join(tensor.name for tensor in config.input) or "none"
        return f"names '{name[:80]}', which is no input; its inputs are: {names}"
    if found.data_type not in (0, _TYPE_STRING) or not set(found.dims) <= {1, -1}:
        return f"names '{name[:80]}', which must be TYPE_STRING with dims: [1]"
    needed = [tensor.name for tensor in config.input if tensor.name != name and not tensor.optional]
    if needed:
        return f"leaves out the input '{needed[0][:80]}'; all others must be optional"
    return ""


BODY_RULES = (_known_kinds, _bodies)
