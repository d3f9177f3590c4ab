"""What this gateway runs, how much memory that was granted, and whose workers died, for the control
process to show.
"""

import os
from collections.abc import Iterable
from typing import Any

from google.protobuf.text_format import MessageToString

from backends.host.crash_history import CrashHistory, joined
from server.fleet.memory.ledger import DeviceAccount
from server.routing.worker_monitor import deaths_of, resident_of
from server.served_version import ServedVersion
from server.signature import TensorSpec

SHOWN_GRANTS = 50
LARGEST_CONFIG = 256 * 1024
"""Characters of a config that are told."""


def running(served: Iterable[ServedVersion], accounts: Iterable[DeviceAccount]) -> dict[str, Any]:
    """Plain maps: a row a version, and each device's budget with its largest holders."""
    return {
        "pid": os.getpid(),
        "resident_bytes": resident_of(os.getpid()),
        "machine_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "accounts": [_account(one) for one in accounts],
        "rows": [_row(one) for one in served],
    }


def loaded(served: Iterable[ServedVersion], model: str) -> dict[str, Any]:
    """A row for each loaded version of a model, the highest first: its inputs and outputs with
    shapes as requests have them, and its config as it was completed."""
    mine = [one for one in served if one.version.name == model]
    return {"rows": [_loaded(one) for one in sorted(mine, key=lambda one: -one.version.number)]}


def dying(served: Iterable[ServedVersion]) -> dict[str, Any]:
    """A row for each version of which a worker has died; cheap where none has."""
    return {"rows": [row for one in served if (row := _dying(one)) is not None]}


def _dying(served: ServedVersion) -> dict[str, Any] | None:
    told = (getattr(one, "streak", None) for one in served.instances)
    streak = joined(one for one in told if isinstance(one, CrashHistory))
    if not streak.deaths:
        return None
    return {
        "model": served.version.name,
        "version": served.version.number,
        "instances": len(served.instances),
        "ready": sum(one.ready for one in served.instances),
        "deaths": streak.deaths,
        "since": streak.since,
        "last": streak.last,
        "ending": streak.ending,
    }


def _loaded(served: ServedVersion) -> dict[str, Any]:
    signature = served.signature
    return {
        "model": served.version.name,
        "version": served.version.number,
        "inputs": [_tensor(one) for one in signature.inputs.values()],
        "outputs": [_tensor(one) for one in signature.outputs.values()],
        "config": MessageToString(served.version.config, as_utf8=True)[:LARGEST_CONFIG],
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.full_dims)}


def _row(served: ServedVersion) -> dict[str, Any]:
    instances, counters = served.instances, served.counters
    pids = [pid for one in instances if (pid := getattr(one, "pid", None))]
    return {
        "model": served.version.name,
        "version": served.version.number,
        "backend": served.version.config.backend,
        "devices": sorted({str(one.device) for one in instances}),
        "instances": len(instances),
        "ready": sum(one.ready for one in instances),
        "deaths": sum(map(deaths_of, instances)),
        "pids": pids,
        "sandbox": ", ".join(sorted({one.sandbox for one in instances if hasattr(one, "sandbox")})),
        "resident_bytes": sum(map(resident_of, pids)),
        "pending": counters.pending,
        "inflight": served.scheduler.inflight(),
        "succeeded": counters.success,
        "failed": sum(counters.failure.values()),
        "load_s": served.load_seconds,
        "sampling": dict(served.language.defaults) if served.language is not None else {},
    }


def _account(account: DeviceAccount) -> dict[str, Any]:
    return {
        "device": account.device,
        "budget_bytes": account.budget,
        "granted_bytes": account.granted,
        "holders": len(account.grants),
        "grants": [
            {"holder": one.holder, "bytes": one.bytes, "least_bytes": one.least}
            for one in account.grants[:SHOWN_GRANTS]
        ],
    }
