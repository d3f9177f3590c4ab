"""What the control API answers with: one Struct for each thing, and pages of them. Light, so that
the command line decodes answers without a database's library. Pure."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

import msgspec
import orjson
from msgspec import Meta

from control.clock import Moment, text_of
from control.import_states import ImportState
from control.lineage import Lineage
from control.push_states import PushState
from control.repository_settings import RepositorySettings
from repository.sources.progress import Progress

T = TypeVar("T")
R = TypeVar("R")


def to_plain(document: Any) -> Any:
    """Structs as objects, with moments left as they are."""
    return msgspec.to_builtins(document, builtin_types=(datetime,))


def to_json(document: Any) -> bytes:
    """JSON of Structs, with moments to the millisecond."""
    return orjson.dumps(to_plain(document), default=text_of, option=orjson.OPT_PASSTHROUGH_DATETIME)


class Page(msgspec.Struct, Generic[T], frozen=True):
    """Some of a list; `next` is the cursor of what follows, None at the end."""

    items: tuple[T, ...]
    next: Annotated[str | None, Meta(description="The cursor of the next page.")] = None

    def map(self, made: Callable[[T], R]) -> "Page[R]":
        return Page(tuple(made(item) for item in self.items), self.next)


class ErrorDetail(msgspec.Struct, frozen=True):
    """Why a request was not answered as it was meant to be."""

    code: Annotated[str, Meta(examples=["not_found"])]
    message: Annotated[
        str,
        Meta(description="What happened and what would work.", examples=["there is no user 'eve'"]),
    ]
    field: Annotated[str, Meta(description="The field or parameter; may be empty.", examples=[""])]
    request_id: Annotated[
        str, Meta(description="To be found in the log.", examples=["01hq3k5v7m9n2p4r6t8w"])
    ]


class ErrorDocument(msgspec.Struct, frozen=True):
    """The body of every answer that is an error."""

    error: ErrorDetail


class PendingView(msgspec.Struct, frozen=True):
    """`reason`: why the alias or route is not in force on `server`, first told `at`."""

    server: str
    reason: str
    at: Moment


class AliasView(msgspec.Struct, frozen=True):
    """`updated_by` is a principal; `revision` is for compare-and-set; `pending`: the servers on
    which it does not stand for `version` yet."""

    model: str
    name: str
    version: int
    updated_at: Moment
    updated_by: str
    revision: int
    pending: tuple[PendingView, ...]


class HealthView(msgspec.Struct, frozen=True):
    """How a version is: its load state and what it answers. `state`: READY, DEGRADED (answers worse
    than it should), FAILING (does not answer as it should), FAILED, LOADING, DRAINING or UNLOADED;
    `reason_code` as docs/health.md lists them; `since`: when its gateway saw it."""

    state: str
    reason_code: str
    reason: str
    since: Moment


class LoadView(msgspec.Struct, frozen=True):
    """`version` 0 stands for the model as a whole; `at` is when the state was first told."""

    server: str
    model: str
    version: int
    state: str
    reason: str
    at: Moment
    health: HealthView


class RepositoryView(msgspec.Struct, frozen=True):
    """A repository as everybody but the tables sees it; `revision` is for compare-and-set."""

    id: str
    name: str
    deploy_ref: str
    settings: RepositorySettings
    created_at: Moment
    revision: int


class CommitView(msgspec.Struct, frozen=True):
    """A commit; what it says of itself has been checked by nobody."""

    commit: str
    parents: list[str]
    author: str
    at: Moment | None
    subject: str


class PushView(msgspec.Struct, frozen=True):
    """A push as everybody but the tables sees it.

    `models`: what it changed, model → digest of its snapshot, None for one it undeployed.
    """

    id: str
    repository: str
    kind: str
    ref: str
    old_commit: str
    new_commit: str
    subject: str
    author: str
    pusher: str
    address: str
    state: PushState
    report: str
    reason: str
    models: Mapping[str, str | None]
    received_at: Moment
    accepted_at: Moment | None
    deployed_at: Moment | None
    finished_at: Moment | None


class ImportView(msgspec.Struct, frozen=True):
    """An import as everybody but the tables sees it.

    `url` is without its query, which may be secret. `digest`: of all that was fetched,
    "sha256:…", "" until it is there. `versions`: those it brought, number → digest, once deployed.
    """

    id: str
    url: str
    model: str
    version: int | None
    expected_digest: str
    state: ImportState
    progress: Progress
    digest: str
    versions: Mapping[str, str]
    reason: str
    by: str
    created_at: Moment
    finished_at: Moment | None


class EventView(msgspec.Struct, frozen=True):
    """One event; `id` is where a stream resumes."""

    id: int
    at: Moment
    kind: str
    subject: str
    actor: str
    data: Mapping[str, Any]


class AuditView(msgspec.Struct, frozen=True):
    """Who changed what, from what to what, from where; `id` is that of its event."""

    id: int
    at: Moment
    actor: str
    via: str
    address: str
    action: str
    subject: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


class ServerView(msgspec.Struct, frozen=True):
    """A server that shares the database. `seen_at`: its last heartbeat."""

    id: str
    version: str
    admin_url: str
    started_at: Moment
    seen_at: Moment
    alive: bool


class ThisServerView(msgspec.Struct, frozen=True):
    """The server that answers. `git_url`: where to push, with the repository's name put in."""

    id: str
    version: str
    url: str
    git_url: str


class SettingView(msgspec.Struct, frozen=True):
    """A setting in force, and where its value came from, e.g. "--http-port" or "default"."""

    name: str
    value: str
    source: str
    meaning: str


class ArmOfRoute(msgspec.Struct, frozen=True):
    """Who may answer; `weight` in percent, and a version or an alias."""

    name: str
    model: str
    version: int | None
    alias: str | None
    weight: float


class RuleOfRoute(msgspec.Struct, frozen=True):
    """Requests that go to an arm whatever the weights are."""

    header: str
    value: str
    prefix: bool
    arm: str


class MirrorOfRoute(msgspec.Struct, frozen=True):
    """An arm that gets copies of so many percent of the requests."""

    arm: str
    percent: float


class RouteDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A route. `only`: the arm that gets everything while the kill switch is on; `rollout`: the
    rollout that owns the weights; `revision` is for compare-and-set; `pending`: the servers on
    which it is not in force as it stands here."""

    name: str
    arms: tuple[ArmOfRoute, ...]
    unit: str
    salt: str
    matches: tuple[RuleOfRoute, ...]
    mirrors: tuple[MirrorOfRoute, ...]
    only: str | None
    rollout: str | None
    updated_at: Moment
    updated_by: str
    revision: int
    pending: tuple[PendingView, ...]


class Explanation(msgspec.Struct, frozen=True):
    """`arm`, `model` and `version` are null where each request is drawn anew; `bucket` is null
    where no bucket was looked at. `label` is what the response would say."""

    arm: str | None
    model: str | None
    version: int | None
    bucket: int | None
    label: str | None
    reason: str


class VersionStateView(msgspec.Struct, frozen=True):
    """What a server says of a version."""

    server: str
    state: str
    reason: str
    at: Moment
    health: HealthView


class Provenance(msgspec.Struct, frozen=True):
    """Where a version came from. `source`: the commit or URL that brought it first."""

    repository: str | None
    push: str | None
    source: str
    pusher: str
    signer: str


class VersionView(msgspec.Struct, frozen=True):
    """One version for ever. `digest`: over its files; `snapshot`: a snapshot that has it.
    `deployed`: the model's deployed snapshot has it; `lineage`: null unless a job made it."""

    model: str
    version: int
    digest: str
    snapshot: str
    size_bytes: int
    files: int
    provenance: Provenance
    checks: Mapping[str, Any]
    created_at: Moment
    deployed: bool
    states: tuple[VersionStateView, ...]
    aliases: tuple[str, ...]
    lineage: Lineage | None = None


class VersionOfModel(msgspec.Struct, frozen=True):
    """A version in its model's view."""

    version: int
    digest: str
    deployed: bool
    states: tuple[VersionStateView, ...]
    aliases: tuple[str, ...]


class ModelView(msgspec.Struct, frozen=True):
    """One model. `snapshot` is None when it was undeployed; `commit` brought what is deployed.
    `aliases`: name → version. `health`: the worst state of its versions on any server, "" when none
    is loaded."""

    name: str
    repository: str | None
    commit: str
    snapshot: str | None
    push: str | None
    deployed_at: Moment
    revision: int
    versions: tuple[VersionOfModel, ...]
    aliases: Mapping[str, int]
    states: tuple[VersionStateView, ...]
    health: str


class RequestView(msgspec.Struct, frozen=True):
    """A request that has ended. `id` is ours, as the response said it in `x-request-id`, unique
    over servers; `client_id` is what the client gave, in the body or in that header. `version` 0:
    it was refused before one was found. `instance`: the number of the one that executed it, null
    where none did. `queue_s` until its execution began, or all of its time where none did;
    `compute_s` from there to its answer. `outcome`: ok, failed, refused (it came to no scheduler)
    or cancelled. `server`: the id of the one that it came to."""

    id: str
    client_id: str
    at: Moment
    model: str
    version: int
    arm: str
    instance: int | None
    queue_s: float
    compute_s: float
    outcome: str
    error: str
    server: str


class SilentServerView(msgspec.Struct, frozen=True):
    """A server that has not answered, and why."""

    server: str
    reason: str


class RequestsView(msgspec.Struct, frozen=True):
    """`found` requests fit on the `servers` that have answered, of which `items` are the first;
    `kept` are there in all. Those that have not are `silent`."""

    items: list[RequestView]
    found: int
    kept: int
    servers: list[str]
    silent: list[SilentServerView]
