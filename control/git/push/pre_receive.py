"""What a push is told while the pusher watches: refused with every reason, or accepted.

`decide` answers git's pre-receive hook, `accepted` its post-receive hook. One row per ref.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from control import crash
from control.access.scopes import Action, Principal, allows, why_not
from control.deployments import pushes, repositories
from control.deployments.pushes import PushFacts
from control.errors import (
    ControlError,
    DatabaseDamaged,
    DatabaseFull,
    DatabaseGone,
    NotFound,
)
from control.git.push.callees import callee_findings
from control.git.push.examine import Examiner
from control.git.push.pipeline_steps import pusher_findings
from control.git.push.summary import models_text, summary
from control.sql.database import Actor, Database, Transaction
from control.views import PushView, RepositoryView
from repository.errors import RepositoryError
from repository.findings import Finding, lines
from repository.git import bare as repositories_on_disk
from repository.git.bare import BareRepository
from repository.git.contents.objects import commit_info, is_ancestor
from repository.git.errors import GitFailed, GitTimedOut
from repository.git.hooks.hook import HookRequest
from repository.git.hooks.listener import Say
from repository.git.names import is_null
from repository.git.process import run
from repository.git.quarantine import Quarantine, quarantine_of
from repository.git.rules import RefUpdate, check_refs, is_protected
from repository.git.text import plain_text
from repository.lfs.threads import in_thread

HEADS, TAGS = "refs/heads/", "refs/tags/"

MOST_FACTS = 100
"""A push of more refs is refused without a look at what they point to, and so many have a row."""

NOTHING_CHANGED = "nothing was changed in '{}'"

AGAIN_S = 30
"""When to push again after the database did not answer."""

NO_COMMIT = "points to no commit; push a commit, or a tag of one"

_log = logging.getLogger(__name__)

Followed = Callable[[str, Say], Awaitable[None]]
"""Told of a push that is to be deployed; returns when it is served or failed, or takes long."""


@dataclass(slots=True)
class PushContext:
    """One push under way, from the request that brought it; `ids` once it was accepted."""

    principal: Principal
    address: str
    repository: str
    ids: dict[str, str] = field(default_factory=dict)  # ref → push id


@dataclass(slots=True)
class _PreReceiveResult:
    """What the pusher, `principal`, is told, and what refuses the push."""

    say: Say
    principal: Principal
    told: list[str] = field(default_factory=list)
    refused: bool = False

    def tell(self, line: str) -> None:
        self.told.append(line)
        self.say(line)

    def refuse(self, findings: Sequence[Finding]) -> None:
        for line in lines(findings):
            self.tell(line)
        self.refused = self.refused or bool(findings)

    @property
    def report(self) -> str:
        return "\n".join(self.told)


class PreReceiveHook:
    """Decides on pushes; on the loop, what blocks is on threads."""

    def __init__(
        self, database: Database, store: Path, examiner: Examiner, follow: Followed
    ) -> None:
        self._database = database
        self._store = store
        self._examiner = examiner
        self._follow = follow

    async def decide(self, pushing: PushContext, request: HookRequest, say: Say) -> bool:
        """Whether git may move the refs. What it says is kept with the push."""
        decision = _PreReceiveResult(say, pushing.principal)
        facts = [PushFacts()] * len(request.updates)
        try:
            bare = repositories_on_disk.find(self._store, pushing.repository)
            quarantine = quarantine_of(request.quarantine, bare.path)
            view = await self._view(pushing.repository)
            if len(request.updates) <= MOST_FACTS:
                facts = [await _facts(bare, one, quarantine) for one in request.updates]
            if await self._check_refs(decision, bare, view, pushing, request):
                await self._check_commits(decision, bare, view, request.updates, quarantine)
        except (RepositoryError, ControlError) as error:
            decision.tell(not_taken(error))
            decision.refused = True
        except OSError as error:
            _log.error("a push to '%s' cannot be checked: %s", pushing.repository, error)
            what = f"this server's disk fails ({error.strerror or 'see its log'})"
            decision.tell(f"{what}; tell its operator, and push again later")
            decision.refused = True
        if decision.refused:
            decision.tell(NOTHING_CHANGED.format(pushing.repository))
        await self._keep(pushing, request.updates, facts, decision)
        if not decision.refused:
            crash.point("push.received")
        return not decision.refused

    async def accepted(self, pushing: PushContext, request: HookRequest, say: Say) -> bool:
        """git has moved these refs: the deploy ref is deployed while the pusher waits.

        git may have failed to move others of the same push, which are none of them.
        """
        crash.point("push.refs_moved")
        actor = Actor(pushing.principal.id, "git", pushing.address)
        moved = [pushing.ids[one.ref] for one in request.updates if one.ref in pushing.ids]
        try:
            views = await in_thread(self._accept, actor, moved)
        except ControlError as error:
            say(f"git has updated the refs; this server records it later: {error}")
            return True
        crash.point("push.accepted")
        for view in views:
            if view.state == "accepted":
                await self._follow(view.id, say)
        return True

    async def _check_refs(
        self,
        decision: _PreReceiveResult,
        bare: BareRepository,
        view: RepositoryView,
        pushing: PushContext,
        request: HookRequest,
    ) -> bool:
        """Whether these refs may move at all, whatever they move to."""
        protected = view.settings.protected_refs
        decision.refuse(check_refs(request.updates, protected))
        if decision.refused:  # there may be too many of them to look at each
            return False
        quarantine = quarantine_of(request.quarantine, bare.path)
        forced = {
            update.ref
            for update in request.updates
            if is_protected(update.ref, protected) and await _is_forced(bare, update, quarantine)
        }
        decision.refuse(check_refs(request.updates, protected, forced))
        for update in request.updates:
            decision.refuse(_not_allowed(pushing, update))
        return not decision.refused

    async def _check_commits(
        self,
        decision: _PreReceiveResult,
        bare: BareRepository,
        view: RepositoryView,
        updates: Sequence[RefUpdate],
        quarantine: Quarantine | None,
    ) -> None:
        for update in updates:
            if not is_null(update.new):
                await self._check_commit(decision, bare, view, update, quarantine)
            elif update.ref == view.settings.deploy_ref:
                decision.tell(f"{_short(update.ref)} is deleted; what it deployed stays deployed")

    async def _check_commit(
        self,
        decision: _PreReceiveResult,
        bare: BareRepository,
        view: RepositoryView,
        update: RefUpdate,
        quarantine: Quarantine | None,
    ) -> None:
        if not await _has_commit(bare, update, quarantine):
            decision.refuse([_ref_finding(update.ref, "E420", NO_COMMIT)])
            return
        entries, found = await self._examiner.tree(bare, view, update.new, quarantine)
        decision.refuse(found)
        if found:
            return
        if not update.ref.startswith(HEADS):
            decision.tell(f"{_short(update.ref)} is stored, not deployed")
            return
        deploys = update.ref == view.settings.deploy_ref
        examined = await self._examiner.examine(bare, view, update.new, entries, quarantine)
        for finding in examined.warnings:
            decision.tell(f"warning: {finding}")
        examined.findings += callee_findings(decision.principal, examined.inspected)
        declared = {name: one.declared for name, one in examined.inspected.items()}
        examined.findings += pusher_findings(decision.principal, declared)
        if deploys:
            decision.refuse(examined.findings)
            if examined.unseen:
                decision.tell(f"… and {models_text(examined.unseen)} not checked yet")
            if not examined.findings:
                for line in summary(examined):
                    decision.tell(line)
                _log.debug("push to %s passes: %s", update.ref, decision.report)
            return
        for line in lines(examined.findings):
            decision.tell(f"warning: {line}")
        only = _short(view.settings.deploy_ref)
        decision.tell(f"{_short(update.ref)} is stored, not deployed; only {only} is")

    async def _view(self, name: str) -> RepositoryView:
        def look() -> RepositoryView:
            with self._database.reading() as session:
                return repositories.get_repository(session, name)

        return await in_thread(look)

    async def _keep(
        self,
        pushing: PushContext,
        updates: Sequence[RefUpdate],
        facts: Sequence[PushFacts],
        decision: _PreReceiveResult,
    ) -> None:
        """A row per ref; without one that says "received" no ref may move."""
        actor = Actor(pushing.principal.id, "git", pushing.address)
        try:
            await in_thread(self._write, actor, pushing, updates, facts, decision)
        except NotFound:  # the repository was deleted meanwhile, and its pushes with it
            decision.refused = True
        except ControlError as error:
            if not decision.refused:
                unchanged = NOTHING_CHANGED.format(pushing.repository)
                decision.tell(f"{not_taken(error)}; {unchanged}")
            decision.refused = True

    def _write(
        self,
        actor: Actor,
        pushing: PushContext,
        updates: Sequence[RefUpdate],
        facts: Sequence[PushFacts],
        decision: _PreReceiveResult,
    ) -> None:
        made = {}
        with self._database.change(actor) as tx:
            if decision.refused:
                refuse_each(tx, pushing, updates, facts, decision.report)
                return
            for update, facts_of_ref in zip(updates, facts, strict=True):
                push_facts = PushFacts(
                    facts_of_ref.subject, facts_of_ref.author, report=decision.report
                )
                view = pushes.receive(tx, pushing.repository, update, push_facts)
                made[update.ref] = view.id
        pushing.ids.update(made)

    def _accept(self, actor: Actor, ids: Sequence[str]) -> list[PushView]:
        with self._database.change(actor) as tx:
            return [pushes.accept(tx, push_id) for push_id in ids]


def refuse_each(
    tx: Transaction,
    pushing: PushContext,
    updates: Sequence[RefUpdate],
    facts: Sequence[PushFacts],
    report: str,
) -> None:
    """A row per refused ref, of the first that there are. Raises NotFound."""
    for update, facts_of_ref in list(zip(updates, facts, strict=True))[:MOST_FACTS]:
        pushes.refuse(tx, pushing.repository, update, facts_of_ref, report)


async def _is_forced(
    bare: BareRepository, update: RefUpdate, quarantine: Quarantine | None
) -> bool:
    """Whether an existing ref does not only move forward; a tag has no forward."""
    if is_null(update.old) or is_null(update.new):
        return False
    if update.ref.startswith(TAGS):
        return True
    try:
        return not await is_ancestor(bare.path, update.old, update.new, quarantine)
    except GitTimedOut:
        raise
    except GitFailed:  # one of the two is no commit
        return True


async def _has_commit(
    bare: BareRepository, update: RefUpdate, quarantine: Quarantine | None
) -> bool:
    """Whether the ref would point to a commit: a branch directly, a tag perhaps through others."""
    revision = f"{update.new}^{{commit}}"
    command = ("rev-parse", "--verify", "--quiet", "--end-of-options", revision)
    output = await run(bare.path, *command, quarantine=quarantine, accepted=(0, 1, 128))
    commit = output.stdout.decode().strip()
    return commit == update.new if update.ref.startswith(HEADS) else bool(commit)


async def _facts(
    bare: BareRepository, update: RefUpdate, quarantine: Quarantine | None
) -> PushFacts:
    """Subject and author of the commit, empty for a deleted ref or an unreadable commit."""
    if is_null(update.new):
        return PushFacts()
    try:
        commit = await commit_info(bare.path, update.new, quarantine)
    except RepositoryError:
        return PushFacts()
    return PushFacts(commit.subject, f"{commit.author.name} <{commit.author.email}>")


def _not_allowed(pushing: PushContext, update: RefUpdate) -> list[Finding]:
    if allows(pushing.principal, Action.PUSH, pushing.repository, update.ref):
        return []
    why = why_not(pushing.principal, Action.PUSH, pushing.repository, update.ref)
    return [_ref_finding(update.ref, "E424", why)]


def _ref_finding(ref: str, code: str, message: str) -> Finding:
    return Finding(Path(plain_text(ref, 250)), 0, 0, code, message)


def _short(ref: str) -> str:
    """The ref as its owner calls it."""
    if ref.startswith(TAGS):
        return f"the tag {plain_text(ref.removeprefix(TAGS), 250)}"
    return plain_text(ref.removeprefix(HEADS), 250)


def not_taken(error: Exception) -> str:
    """Why a push is refused that nothing is wrong with, and when to try again."""
    if isinstance(error, DatabaseDamaged | DatabaseFull):
        return f"the push was refused: {error}"  # which says what to do first
    if isinstance(error, DatabaseGone):
        return (
            f"the push was refused: {error}; push again in {AGAIN_S} seconds, and tell this "
            "server's operator when that is refused as well"
        )
    return str(error)
