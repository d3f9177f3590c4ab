"""A job out of what somebody asks for: checked, its source found, its result named, enqueued."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from control.jobs import service, sources
from control.jobs.policy.limits import usual_limits
from control.jobs.service import JobTerms
from control.jobs.spec_document import read_limits, read_spec
from control.jobs.views import JobView
from control.sql.database import Transaction


@dataclass(frozen=True, slots=True)
class JobRequest:
    """`spec` and `limits` as documents. `folders`: the model repositories of this server.
    `check_use` raises where who asks may not use the model of a name, `check_trusted` where they
    may not say that files which can run code are to be trusted."""

    spec: Mapping[str, Any]
    check_use: Callable[[str], None]
    check_trusted: Callable[[], None]
    limits: Mapping[str, Any] = field(default_factory=dict)
    folders: Sequence[Path] = ()
    terms: JobTerms = field(default_factory=JobTerms)


def create(tx: Transaction, request: JobRequest) -> JobView:
    """Enqueue the job. Its spec has the version and the result's model filled in.

    Raises Invalid naming the field, NotFound, NotAllowed, Conflict, TooMany.
    """
    spec = read_spec(request.spec)
    limits = read_limits(request.limits, usual_limits(service.type_of(spec)))
    request.check_use(spec.model)
    if getattr(spec, "trusted", False):
        request.check_trusted()
    source = sources.find_source(tx.session, spec.model, spec.version, request.folders)
    sources.check_trust(spec, source)
    result = sources.result_model(tx.session, spec, source, request.folders)
    spec = msgspec.structs.replace(spec, version=source.folder.version, result_model=result)
    terms = replace(request.terms, result_model=result, limits=limits)
    return service.enqueue(tx, spec, {service.SOURCE: source.folder}, terms)
