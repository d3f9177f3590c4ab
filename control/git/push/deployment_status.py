"""Has a deployed push become what is served? From what a gateway says of its loads. Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from control.gateways.messages import LoadReport, LoadRow


class DeploymentStatus(NamedTuple):
    """`served` when every model answers with what was pushed; otherwise why not."""

    served: bool
    reason: str
    told: tuple[str, ...]


def judge(
    models: Mapping[str, str | None], revision: int, loads: LoadReport | None
) -> DeploymentStatus | None:
    """The verdict on a push that touched `models`, None while it is too early for one.

    `revision`: of the desired state that has it. A model that a push removed needs nothing.
    """
    if loads is None or loads.revision < revision or not loads.settled:
        return None
    names = [name for name, digest in sorted(models.items()) if digest is not None]
    lines, reasons = [], []
    for name in names:
        rows = [row for row in loads.rows if row.model == name]
        if problem := _problem(name, rows):
            reasons.append(problem)
        else:
            ready = ", ".join(str(row.version) for row in rows if row.state == "READY")
            lines.append(f"{name}: version {ready} is ready")
    return DeploymentStatus(not reasons, "; ".join(reasons), tuple(lines))


def _problem(name: str, rows: Iterable[LoadRow]) -> str:
    """Why the model does not serve what was pushed; "" when it does."""
    rows = list(rows)
    bad = [row for row in rows if row.state == "FAILED" or (row.state == "READY" and row.reason)]
    if bad:
        return "; ".join(f"{name} {row.version or ''}: {row.reason}" for row in bad)
    if not any(row.state == "READY" for row in rows):
        return f"{name}: the gateway loaded no version of it"
    return ""
