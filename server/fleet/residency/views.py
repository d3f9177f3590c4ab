"""A version that loads on demand, as the control process is told of it."""

from control.gateways.queries import ResidentVersion
from server.fleet.residency.terms import ResidencyTerms
from server.served_version import ResidencyRow


def resident_version(row: ResidencyRow, terms: ResidencyTerms) -> ResidentVersion:
    state = "loaded" if row.resident else "loading" if row.loading else "unloaded"
    return ResidentVersion(
        model=row.name,
        version=row.version,
        state=state,
        pinned=row.pinned,
        bytes=row.bytes,
        idle_s=row.idle_s,
        waiting=row.waiting,
        evictions=row.evictions,
        held_by=row.hold,
        warm_hours="" if terms.warm_hours is None else terms.warm_hours.text,
        keep_warm_s=terms.keep_warm_s,
        min_residency_s=terms.min_residency_s,
        idle_unload_s=terms.idle_unload_s,
    )
