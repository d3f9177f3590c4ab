"""Whether a pushed config says something of rollouts that cannot be followed."""

from pathlib import Path

from control.errors import Invalid
from control.rollouts.plan_keys import parameters_plan
from repository.config import decode
from repository.errors import BadRepository, ConfigError
from repository.findings import Finding
from repository.folders import CONFIG_NAME, FolderReader
from repository.positions import Positions
from repository.snapshot import read_config

CODE = "E470"


def rollout_findings(folder: Path) -> list[Finding]:
    """What is wrong with `parameters.rollout…` of the model in `folder`; blocks.

    A config that cannot be read at all has other findings.
    """
    try:
        state = FolderReader().repository(folder.parent).get(folder.name)
        config = read_config(state) if state is not None else None
    except (BadRepository, ConfigError):
        return []
    if state is None or config is None or state.config is None:
        return []
    try:
        parameters_plan({name: value.string_value for name, value in config.parameters.items()})
    except Invalid as error:
        where = folder / CONFIG_NAME
        line, column = Positions(where, decode(state.config, where)).at("parameters")
        return [Finding(where, line, column, CODE, str(error))]
    return []
