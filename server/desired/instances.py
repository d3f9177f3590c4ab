"""What this gateway runs, how much memory that was granted, and whose workers died, for the control
process to show.
"""

import os
from collections.abc import Iterable

from google.protobuf.text_format import MessageToString

from control.gateways.queries import (
    CrashReport,
    DeviceMemory,
    EnsembleStepFacts,
    GatewayInstances,
    GrantedMemory,
    LimitedResource,
    LoadedTensor,
    LoadedVersionFacts,
    LoadedVersions,
    RunningLoadPhase,
    RunningSequences,
    RunningVersion,
    VersionCrashes,
)
from schedulers.counters import SequenceCounters
from schedulers.ensembles.policy.compile import CompiledStep
from schedulers.policy.resource_limits import ResourceLimiter, ResourceUsage, device_text
from server.fleet.memory.grants import MemoryAllocator
from server.fleet.memory.ledger import DeviceAccount
from server.health.monitor import crashes_of
from server.routing.worker_monitor import deaths_of, resident_of
from server.served_version import ServedVersion
from server.signature import TensorSpec

SHOWN_GRANTS = 50
LARGEST_CONFIG = 256 * 1024
"""Characters of a config that are told."""


def running(
    served: Iterable[ServedVersion],
    memory: MemoryAllocator,
    limiter: ResourceLimiter | None,
    model: str = "",
) -> GatewayInstances:
    """An item a version, of `model` alone where one is given, each device's budget with its largest
    holders, and the resources that executions hold."""
    wanted = [one for one in served if model in ("", one.version.name)]
    return GatewayInstances(
        pid=os.getpid(),
        resident_bytes=resident_of(os.getpid()),
        machine_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        accounts=tuple(map(_account, memory.accounts())),
        items=tuple(map(_running, wanted)),
        resources=tuple(map(_resource, limiter.usage())) if limiter is not None else (),
    )


def loaded(served: Iterable[ServedVersion], model: str) -> LoadedVersions:
    """An item for each loaded version of a model, the highest first: its inputs and outputs with
    shapes as requests have them, and its config as it was completed."""
    mine = [one for one in served if one.version.name == model]
    ordered = sorted(mine, key=lambda one: -one.version.number)
    return LoadedVersions(tuple(map(_loaded, ordered)))


def crashes(served: Iterable[ServedVersion]) -> CrashReport:
    """An item for each version of which a worker has died; cheap where none has."""
    return CrashReport(tuple(found for one in served if (found := _crashes(one)) is not None))


def _crashes(served: ServedVersion) -> VersionCrashes | None:
    history = crashes_of(served)
    if not history.deaths:
        return None
    return VersionCrashes(
        model=served.version.name,
        version=served.version.number,
        instances=len(served.instances),
        ready=sum(one.ready for one in served.instances),
        deaths=history.deaths,
        since=history.since,
        last=history.last,
        ending=history.ending,
    )


def _loaded(served: ServedVersion) -> LoadedVersionFacts:
    signature = served.signature
    return LoadedVersionFacts(
        model=served.version.name,
        version=served.version.number,
        inputs=tuple(map(_tensor, signature.inputs.values())),
        outputs=tuple(map(_tensor, signature.outputs.values())),
        config=MessageToString(served.version.config, as_utf8=True)[:LARGEST_CONFIG],
        folder=str(served.version.folder),
        language={} if served.language is None else dict(served.language.facts),
        steps=tuple(map(_step, getattr(served.instances[0], "compiled_steps", ())))
        if served.instances
        else (),
    )


def _step(compiled: CompiledStep) -> EnsembleStepFacts:
    step = compiled.step
    return EnsembleStepFacts(
        number=step.number,
        model=step.model,
        version=step.version,
        inputs=dict(step.inputs),
        outputs=dict(step.outputs),
        condition="" if step.condition is None else str(step.condition),
        mapped=step.mapped,
        decoupled=compiled.decoupled,
    )


def _tensor(spec: TensorSpec) -> LoadedTensor:
    return LoadedTensor(spec.name, spec.datatype, tuple(spec.full_dims))


def _running(served: ServedVersion) -> RunningVersion:
    instances, counters = served.instances, served.counters
    pids = tuple(pid for one in instances if (pid := getattr(one, "pid", None)))
    return RunningVersion(
        model=served.version.name,
        version=served.version.number,
        backend=served.version.config.backend or served.version.config.platform,
        devices=tuple(sorted({str(one.device) for one in instances})),
        instances=len(instances),
        ready=sum(one.ready for one in instances),
        deaths=sum(map(deaths_of, instances)),
        pids=pids,
        sandbox=", ".join(sorted({one.sandbox for one in instances if hasattr(one, "sandbox")})),
        resident_bytes=sum(map(resident_of, pids)),
        pending=counters.pending,
        inflight=served.scheduler.inflight(),
        succeeded=counters.success,
        failed=sum(counters.failure.values()),
        load_s=served.load_seconds,
        load_phases=tuple(
            RunningLoadPhase(one.name, one.seconds, one.bytes) for one in served.load_phases
        ),
        sampling=dict(served.language.defaults) if served.language is not None else {},
        sequences=None if counters.sequences is None else _sequences(counters.sequences),
    )


def _sequences(counters: SequenceCounters) -> RunningSequences:
    return RunningSequences(
        live=counters.live,
        backlog=counters.backlog,
        slots=counters.slots,
        in_use=counters.in_slots,
        oldest_s=counters.oldest_s,
        state_bytes=counters.state_bytes(),
        started=counters.started,
        expired=counters.expired,
        lost=counters.lost,
        conflicts=counters.conflicts,
    )


def _resource(usage: ResourceUsage) -> LimitedResource:
    name, device = usage.resource
    return LimitedResource(name, device_text(device), usage.copies, usage.in_use, usage.waiting)


def _account(account: DeviceAccount) -> DeviceMemory:
    return DeviceMemory(
        device=account.device,
        budget_bytes=account.budget,
        granted_bytes=account.granted,
        holders=len(account.grants),
        grants=tuple(
            GrantedMemory(one.holder, one.bytes, one.least) for one in account.grants[:SHOWN_GRANTS]
        ),
    )
