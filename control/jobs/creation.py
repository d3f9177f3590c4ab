"""A job out of what somebody asks for: checked, its source found, its result named, enqueued; or
tried again, with the same checks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from control.errors import Invalid
from control.jobs import service, sources
from control.jobs.policy.limits import usual_limits
from control.jobs.service import JobTerms
from control.jobs.sources import FoundSource
from control.jobs.spec import JobSpec
from control.jobs.spec_document import read_limits, read_spec
from control.jobs.specs.profile import ProfileSpec
from control.jobs.traffic import LEAST_REQUESTS, SAMPLED
from control.jobs.views import JobView
from control.sql.database import Transaction


@dataclass(frozen=True, slots=True)
class JobRights:
    """What who asks may do. `check_use` raises where they may not use the model of a name,
    `check_trusted` where they may not say that files which can run code are to be trusted.
    `folders`: the model repositories of this server."""

    check_use: Callable[[str], None]
    check_trusted: Callable[[], None]
    folders: Sequence[Path] = ()


@dataclass(frozen=True, slots=True)
class JobRequest:
    """`spec` and `limits` as documents. `data_of`: the version of the store with the data that the
    spec names, None for the one that the job works on."""

    spec: Mapping[str, Any]
    rights: JobRights
    limits: Mapping[str, Any] = field(default_factory=dict)
    terms: JobTerms = field(default_factory=JobTerms)
    data_of: tuple[str, int] | None = None


def create(tx: Transaction, request: JobRequest) -> JobView:
    """Enqueue the job. Its spec has the version and the result's model filled in.

    Raises Invalid naming the field, NotFound, NotAllowed, Conflict, TooMany.
    """
    spec = read_spec(request.spec)
    _check_traffic(spec, len(request.terms.traffic))
    limits = read_limits(request.limits, usual_limits(service.type_of(spec)))
    source = _checked_source(tx, spec, request.rights)
    result = sources.result_model(tx.session, spec, source, request.rights.folders)
    spec = msgspec.structs.replace(spec, version=source.folder.version, result_model=result)
    terms = replace(request.terms, result_model=result, limits=limits)
    read = {service.SOURCE: source.folder}
    if request.data_of is not None:
        files = sources.find_source(tx.session, *request.data_of, ())
        read[service.FILES] = files.folder
    return service.enqueue(tx, spec, read, terms)


def retry(tx: Transaction, job_id: str, rights: JobRights) -> JobView:
    """`service.retry` by somebody who might make such a job now: whoever made it may have had more
    rights, and what it works on more trust.

    Raises Invalid, NotFound (also for a profile whose sampled requests are gone), NotAllowed,
    Conflict, TooMany.
    """
    spec = read_spec(service.get_job(tx.session, job_id).spec)
    _checked_source(tx, spec, rights)
    if isinstance(spec, ProfileSpec) and spec.data == SAMPLED:
        service.get_traffic(tx.session, job_id)
    return service.retry(tx, job_id)


def _check_traffic(spec: JobSpec, requests: int) -> None:
    if isinstance(spec, ProfileSpec) and spec.data == SAMPLED and requests < LEAST_REQUESTS:
        raise Invalid(
            f"data is '{SAMPLED}', and this server has {requests} sampled requests of "
            f"'{spec.model}' that were answered; {LEAST_REQUESTS} are needed: switch sampling on "
            f"(PUT /api/v1/sampling/{spec.model}), let requests come, and ask again",
            "data",
        )


def _checked_source(tx: Transaction, spec: JobSpec, rights: JobRights) -> FoundSource:
    rights.check_use(spec.model)
    if getattr(spec, "trusted", False):
        rights.check_trusted()
    source = sources.find_source(tx.session, spec.model, spec.version, rights.folders)
    sources.check_trust(spec, source)
    return source
