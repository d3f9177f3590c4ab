"""The pump that brings accepted pushes into service: one at a time, by one server at a time.

What is to be done stands in the rows (`control.push_states`); each step is a
transaction under the lease's fence, and every step may be repeated. So a crash needs no repair but
to go on.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from control import crash
from control.clock import utc_now
from control.deployments import pushes
from control.deployments.deployment import deployed_snapshots
from control.deployments.pushes import PushFacts
from control.deployments.sealed_model import SealedModel
from control.errors import ControlError, DatabaseGone, LostLease
from control.gateways.messages import LoadReport
from control.git.push.deployment_status import judge
from control.git.push.examine import Examination, Examiner
from control.loops.promotions import successions
from control.loops.push_rows import PushRows
from control.loops.wake_event import IdleSeconds, WakeEvent, as_usual
from control.pipelines.service import PushedSteps, begin
from control.push_states import PushState
from control.rollouts.promotion import succeed
from control.rollouts.route_weights import RolloutRoutes
from control.sql import leases
from control.sql.database import SYSTEM, Actor, Database, Fence, Transaction
from control.state_paths import SNAPSHOTS
from control.views import PushView
from repository.errors import RepositoryError
from repository.findings import reason
from repository.git import bare as repositories_on_disk
from repository.git.bare import BareRepository
from repository.git.contents.objects import commit_info, is_ancestor, refs
from repository.git.errors import UnknownRepository, UnknownRevision
from repository.git.names import is_null
from repository.git.rules import RefUpdate
from repository.snapshots.sealed_models import SnapshotStore

LEASE, LEASE_S, BEAT_S = "deployer", 15.0, 3.0
"""The lease's name, how long it holds, and how often it is renewed."""

LOAD_S = 900.0
"""How long a deployed push may stay unjudged before it is given up as failed."""

GIVE_UP_S = 30.0
"""How long git may take to move a ref after another server has said yes."""

MOST_TRIES = 5
"""How often a deployment that the disk fails is tried before the pushes behind it go on."""

NO_COMMIT = "0" * 40

UNKNOWN_PUSHER = "unknown"
"""Of a commit that somebody has put into the repository's files, without a push."""

_log = logging.getLogger(__name__)


class Deployer:
    """On the loop. `notify` is called once new desired state may be read."""

    def __init__(
        self,
        database: Database,
        store: Path,
        examiner: Examiner,
        boot: str,
        notify: Callable[[], None],
        underway: Callable[[], Collection[str]],
        idle_s: IdleSeconds = as_usual,
    ) -> None:
        """`underway`: ids of the pushes that git is still busy with, here."""
        self._database = database
        self._rows = PushRows(database, boot)
        self._store = store
        self._snapshots = SnapshotStore(store / SNAPSHOTS)
        self._examiner = examiner
        self._boot = boot
        self._notify = notify
        self._news = WakeEvent(idle_s)
        self.committed = self._news.committed
        self._judged = asyncio.Event()
        self._loads: LoadReport | None = None
        self._tried: Counter[str] = Counter()
        self._due: dict[str, tuple[int, float]] = {}  # push → revision that has it, give up at
        self._repaired = False
        self._underway = underway

    def ring(self) -> None:
        """There may be something to do."""
        self._news.ring()

    def on_load_report(self, loads: LoadReport) -> None:
        """The gateway has said what it loads."""
        self._loads = loads
        self._news.ring()

    async def run(self) -> None:
        """Until cancelled, then the lease is let go."""
        try:
            while True:
                rest = self._news.rest
                try:
                    if await self._is_idle():
                        rest = self._news.rest_idle
                    else:
                        await self._turn()
                except (ControlError, RepositoryError, OSError) as error:
                    level = logging.DEBUG if isinstance(error, DatabaseGone) else logging.WARNING
                    _log.log(level, "deployment is blocked: %s", error)
                    self._repaired = False
                await rest(BEAT_S)
        finally:
            with suppress(ControlError):
                await asyncio.shield(
                    asyncio.to_thread(leases.release, self._database, LEASE, self._boot)
                )

    async def watch(self, push_id: str, until_s: float) -> PushView:
        """The push once it has ended, or as it is after `until_s` seconds."""
        self.ring()
        until = asyncio.get_running_loop().time() + until_s
        while True:
            waiting = self._judged
            view = await asyncio.to_thread(self._rows.push, push_id)
            left = until - asyncio.get_running_loop().time()
            if view.finished_at is not None or left <= 0:
                return view
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, BEAT_S)):
                    await waiting.wait()

    async def _is_idle(self) -> bool:
        """Whether no push waits and none is unknown: the lease is not needed."""
        return self._repaired and not await asyncio.to_thread(self._rows.unfinished)

    async def _turn(self) -> None:
        fence = await asyncio.to_thread(leases.take, self._database, LEASE, self._boot, LEASE_S)
        if fence is None:
            self._repaired = False
            return
        keeping = asyncio.create_task(self._keep())
        try:
            await self._settle_received(fence)
            if not self._repaired:
                await self._find_all_unknown(fence)
                self._repaired = True
            waiting = await asyncio.to_thread(self._rows.unfinished)
            self._forget_all_but({push.id for push in waiting})
            for push in waiting:
                if push.state == PushState.ACCEPTED:
                    await self._deploy(push, fence)
                elif push.state == PushState.DEPLOYED:
                    await self._judge(push, fence)
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    async def _keep(self) -> None:
        """Renew the lease while a long step is made; a lost one is noticed when it commits."""
        while True:
            await asyncio.sleep(BEAT_S)
            with suppress(DatabaseGone):
                await asyncio.to_thread(leases.take, self._database, LEASE, self._boot, LEASE_S)

    # what a crash, here or of another server, or a pusher who went away has left

    async def _settle_received(self, fence: Fence) -> None:
        """git is right: a ref that moved was accepted, one that did not was not."""
        waiting = [
            push
            for push in await asyncio.to_thread(self._rows.unfinished)
            if push.state == PushState.RECEIVED and push.id not in self._underway()
        ]
        others = bool(waiting) and await asyncio.to_thread(self._rows.has_others)
        for push in waiting:
            late = utc_now() - push.received_at > timedelta(seconds=GIVE_UP_S)
            moved, why = False, "the push was cut off before git moved the ref; push again"
            try:
                moved = await self._has_moved(push)
            except RepositoryError as error:  # the pushes to others are not to wait for it
                _log.error(
                    "the state of the push to '%s' cannot be read: %s", push.repository, error
                )
                if not late:
                    continue
                why = f"the state of the push cannot be read: {error}; push again"
            if push.id in self._underway():
                continue  # its row was read before the push was known here
            if moved or late or not others:
                await asyncio.to_thread(self._settle, push, "" if moved else why, fence)

    async def _has_moved(self, push: PushView) -> bool:
        """Whether the ref stands at the push's commit, or past it."""
        try:
            bare = repositories_on_disk.find(self._store, push.repository)
        except UnknownRepository:
            return False
        stands = (await refs(bare.path)).get(push.ref, NO_COMMIT)
        if is_null(push.new_commit) or is_null(stands):
            return stands == push.new_commit
        try:
            await commit_info(bare.path, push.new_commit)
        except UnknownRevision:
            return False  # git threw it away with the push's quarantine
        return await is_ancestor(bare.path, push.new_commit, stands)

    def _settle(self, push: PushView, why_not: str, fence: Fence) -> None:
        with self._database.change(_actor(push), fence) as tx:
            if why_not:
                pushes.finish(tx, push.id, PushState.ABANDONED, why_not)
            else:
                pushes.accept(tx, push.id)

    async def _find_all_unknown(self, fence: Fence) -> None:
        for name in await asyncio.to_thread(repositories_on_disk.names, self._store):
            try:
                bare = repositories_on_disk.find(self._store, name)
                await self._find_unknown(bare, fence)
            except RepositoryError as error:  # the other repositories are not to wait for it
                _log.error("the state of the push to '%s' cannot be read: %s", name, error)

    async def _find_unknown(self, bare: BareRepository, fence: Fence) -> None:
        """A deploy ref that moved without a row: somebody wrote to the repository itself."""
        view = await asyncio.to_thread(self._rows.repository, bare.name)
        if view is None:
            return
        ref = view.settings.deploy_ref
        commit = (await refs(bare.path)).get(ref, "")
        if not commit or await asyncio.to_thread(self._rows.knows, view.id, ref, commit):
            return
        found = await commit_info(bare.path, commit)
        facts = PushFacts(found.subject, found.author.name, UNKNOWN_PUSHER, report="found on start")
        await asyncio.to_thread(
            self._adopt, bare.name, RefUpdate(NO_COMMIT, commit, ref), facts, fence
        )

    def _adopt(self, name: str, update: RefUpdate, facts: PushFacts, fence: Fence) -> None:
        with self._database.change(SYSTEM, fence) as tx:
            pushes.accept(tx, pushes.receive(tx, name, update, facts).id)

    # one push

    async def _deploy(self, push: PushView, fence: Fence) -> None:
        """Seal what the commit has and move the desired state; or say why not."""
        try:
            revision = await self._moved(push, fence)
        except (LostLease, DatabaseGone):
            raise
        except OSError as error:
            self._tried[push.id] += 1
            if self._tried[push.id] < MOST_TRIES:
                raise
            await self._give_up(push, f"this server's disk: {error}", fence)
            return
        except (RepositoryError, ControlError) as error:
            await self._give_up(push, str(error), fence)
            return
        except Exception as error:  # noqa: BLE001 - one push must not stop all others
            _log.exception("push %s to %s cannot be deployed", push.id, push.repository)
            why = f"deploying it failed: {type(error).__name__}: {error}. This is a bug."
            await self._give_up(push, why, fence)
            return
        crash.point("push.deployed")
        self._due[push.id] = (revision, asyncio.get_running_loop().time() + LOAD_S)
        self._notify()
        crash.point("push.told")
        self._move_on()

    def _forget_all_but(self, ids: Collection[str]) -> None:
        """What is kept of pushes that have ended, here or on another server, goes."""
        for push_id in self._due.keys() - ids:
            del self._due[push_id]
        for push_id in self._tried.keys() - ids:
            del self._tried[push_id]

    async def _give_up(self, push: PushView, why: str, fence: Fence) -> None:
        _log.warning("push %s to %s is not deployed: %s", push.id, push.repository, why)
        self._tried.pop(push.id, None)
        await self._finish(push, PushState.FAILED, why, fence)

    async def _moved(self, push: PushView, fence: Fence) -> int:
        """The revision of the desired state that has it. Raises RepositoryError, ControlError."""
        bare = repositories_on_disk.find(self._store, push.repository)
        view = await asyncio.to_thread(self._rows.repository, push.repository)
        if view is None:
            raise _DeploymentRefused(f"the repository '{push.repository}' was deleted")
        entries, found = await self._examiner.tree(bare, view, push.new_commit, None)
        if found:
            raise _DeploymentRefused(reason(found))
        examined = await self._examiner.examine(bare, view, push.new_commit, entries, seal=True)
        if examined.findings:
            raise _DeploymentRefused(reason(examined.findings))
        crash.point("push.snapshot_written")
        await repositories_on_disk.pin(bare, push.new_commit, push.id)
        crash.point("push.before_deploy")

        def deploy() -> None:
            self._read_ahead(examined.sealed.values())
            with self._database.change(_actor(push), fence) as tx:
                before = deployed_snapshots(tx.session)
                deployed = pushes.deploy(tx, push.id, examined.sealed)
                after = {model: digest for model, digest in deployed.models.items() if digest}
                for one in successions(self._snapshots, before, after):
                    succeed(tx, RolloutRoutes(), one)
                if deployed.state == PushState.DEPLOYED:
                    _begin_pipelines(tx, push, examined, after)
            self._snapshots.forget_others()

        await asyncio.to_thread(deploy)
        return await asyncio.to_thread(self._rows.revision)

    def _read_ahead(self, sealed: Iterable[SealedModel]) -> None:
        """The snapshots whose configs decide what the deployment means to routes, from the disk:
        while the transaction is open everybody waits, and it finds them in memory."""
        with self._database.reading() as session:
            before = deployed_snapshots(session)
        for one in sealed:
            self._snapshots.sealed(one.digest)
            if one.model in before:
                self._snapshots.sealed(before[one.model])

    async def _judge(self, push: PushView, fence: Fence) -> None:
        if push.id not in self._due:
            until = asyncio.get_running_loop().time() + LOAD_S
            self._due[push.id] = (await asyncio.to_thread(self._rows.revision), until)
        revision, give_up = self._due[push.id]
        verdict = judge(push.models, revision, self._loads)
        if verdict is None:
            if asyncio.get_running_loop().time() > give_up:
                why = f"no gateway has loaded it within {LOAD_S:g} s"
                await self._finish(push, PushState.FAILED, why, fence)
            return
        state = PushState.SERVED if verdict.served else PushState.FAILED
        await self._finish(push, state, verdict.reason, fence)
        if verdict.served:
            crash.point("push.served")

    async def _finish(self, push: PushView, state: PushState, why: str, fence: Fence) -> None:
        def finish() -> None:
            with self._database.change(_actor(push), fence) as tx:
                pushes.finish(tx, push.id, state, why)

        await asyncio.to_thread(finish)
        self._due.pop(push.id, None)
        self._move_on()

    def _move_on(self) -> None:
        """Wake whoever watches a push."""
        self._judged.set()
        self._judged = asyncio.Event()


def _begin_pipelines(
    tx: Transaction, push: PushView, examined: Examination, changed: Collection[str]
) -> None:
    """Of the models that the push has changed and that declare steps."""
    for model in sorted(changed):
        inspected = examined.inspected.get(model)
        if inspected is not None and inspected.declared.steps:
            digests = {number: one.digest for number, one in inspected.versions.items()}
            steps = inspected.declared.documents
            begin(tx, PushedSteps(model, digests, steps, push.id, was_checked(push)))


def was_checked(push: PushView) -> bool:
    """Whether pre-receive has looked at what its pusher may do."""
    return push.kind == "push" and push.pusher != UNKNOWN_PUSHER


class _DeploymentRefused(RepositoryError):
    """The commit may not be deployed as things are now."""


def _actor(push: PushView) -> Actor:
    return Actor(push.pusher, "git", push.address)
