"""Build a served ensemble: its graph is held against the models that serve its steps now.

Called by `server.fleet.loading`. An ensemble has no instances and no memory of its own, and nothing
of it blocks but reading its label files.
"""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from backends.errors import LoadFailed
from repository.config.ensemble_graph import read_graph
from repository.config.positions import Positions
from repository.config.read import parse
from repository.errors import RepositoryError
from repository.findings import Finding, reason
from repository.folders.walk import CONFIG_NAME
from repository.model import ModelConfig, ModelVersion
from schedulers.callee_signature import CalleeSignature
from schedulers.calls import ModelCaller
from schedulers.counters import Counters
from schedulers.ensembles.policy.compile import Misfit, compile_ensemble
from schedulers.ensembles.scheduler import EnsembleScheduler
from schedulers.ensembles.served_ensemble import ServedEnsemble
from schedulers.errors import SchedulingError
from server.errors import ServingError
from server.fleet.prepare import read_labels
from server.signature import Signature, compile_signature


class PreparedEnsemble(NamedTuple):
    """A loaded ensemble; `version.config` says whether it is decoupled, as its steps are."""

    version: ModelVersion
    signature: Signature
    scheduler: EnsembleScheduler
    ensemble: ServedEnsemble


async def prepare_ensemble(
    version: ModelVersion, caller: ModelCaller, counters: Counters, most_inflight: int
) -> PreparedEnsemble:
    """Raises LoadFailed with every misfit and where it stands, or with the step whose model does
    not serve."""
    where = f"model '{version.name}' version {version.number}"
    graph = read_graph(version.config)
    labels = await asyncio.to_thread(read_labels, version)
    positions = await asyncio.to_thread(_positions, version)
    own = compile_signature(version.config, version.number)
    callees: dict[tuple[str, str], tuple[CalleeSignature, ...]] = {}
    for step in graph.steps:
        try:
            found = tuple(caller.signatures(step.model, step.version))
        except (ServingError, SchedulingError) as error:
            raise LoadFailed(
                f"{where}: step {step.number} needs '{step.model}', which does not serve: {error}; "
                "the ensemble is loaded when it does"
            ) from error
        callees[step.model, step.version] = found
    compiled = compile_ensemble(graph, own, callees)
    if isinstance(compiled, list):
        raise LoadFailed(f"{where}: {reason(_finding(one, positions) for one in compiled)}")
    config = ModelConfig()
    config.CopyFrom(version.config)
    if compiled.decoupled:
        config.model_transaction_policy.decoupled = True
    signature = compile_signature(config, version.number, {**compiled.labels, **labels})
    ensemble = ServedEnsemble(graph, own, compiled, caller.signatures)
    scheduler = EnsembleScheduler(ensemble, caller, counters, most_inflight)
    return PreparedEnsemble(replace(version, config=config), signature, scheduler, ensemble)


def _positions(version: ModelVersion) -> Positions:
    """Of the config's text, where the file says what the version's config says."""
    path = version.folder / CONFIG_NAME
    with suppress(OSError, UnicodeDecodeError, RepositoryError):
        text = path.read_text()
        if parse(text, path).ensemble_scheduling == version.config.ensemble_scheduling:
            return Positions(path, text)
    return Positions(path)


def _finding(misfit: Misfit, positions: Positions) -> Finding:
    line, column = positions.at(misfit.path)
    return Finding(positions.where, line, column, misfit.code, misfit.message)
