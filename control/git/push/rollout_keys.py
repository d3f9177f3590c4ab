"""What a pushed config says of rollouts: that it can be followed, and where it would watch less."""

from dataclasses import dataclass
from pathlib import Path

from control.errors import Invalid
from control.rollouts.plan_keys import parameters_plan
from control.rollouts.windows import latency_gaps
from repository.config.positions import Positions
from repository.config.read import decode
from repository.errors import BadRepository, ConfigError
from repository.findings import Finding
from repository.folders.read import CONFIG_NAME, FolderReader
from repository.folders.snapshot import read_config

CODE, GAP_CODE = "E470", "E471"


@dataclass(frozen=True, slots=True)
class RolloutFindings:
    """`wrong` refuses the model, `gaps` only tell the pusher."""

    wrong: tuple[Finding, ...] = ()
    gaps: tuple[Finding, ...] = ()


def rollout_findings(folder: Path) -> RolloutFindings:
    """What is to be said of `parameters.rollout…` of the model in `folder`; blocks.

    A config that cannot be read at all has other findings.
    """
    try:
        state = FolderReader().repository(folder.parent).get(folder.name)
        config = read_config(state) if state is not None else None
    except (BadRepository, ConfigError):
        return RolloutFindings()
    if state is None or config is None or state.config is None:
        return RolloutFindings()
    where = folder / CONFIG_NAME
    line, column = Positions(where, decode(state.config, where)).at("parameters")

    def found(code: str, words: str) -> Finding:
        return Finding(where, line, column, code, words)

    try:
        plan = parameters_plan({name: one.string_value for name, one in config.parameters.items()})
    except Invalid as error:
        return RolloutFindings(wrong=(found(CODE, str(error)),))
    gaps = latency_gaps(plan) if plan is not None else ()
    return RolloutFindings(gaps=tuple(found(GAP_CODE, f"rollout: {gap}") for gap in gaps))
