"""May this commit be deployed? Asked before a push is accepted, and again when it is deployed.

The second time the models' snapshots are sealed as well; what the first time found is not relied
on, because settings, aliases and other repositories may have changed meanwhile.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import select

from control.deployments.deployment import changed_versions, check_model_name
from control.deployments.route_references import check_models_unrouted
from control.deployments.sealed_model import SealedModel
from control.errors import Conflict, ControlError, Invalid
from control.git.push.draft_builder import DraftBuilder
from control.git.push.inspect import Inspector, ModelInspection
from control.git.push.off_loop import held
from control.git.push.pipeline_steps import CODE
from control.git.push.version_checks import VersionChecks
from control.jobs.sources import check_result
from control.pipelines.steps import FILE, JobStep
from control.sql.database import Database
from control.state_paths import LFS, SNAPSHOTS
from control.tables import Alias, Model, Repository
from control.views import RepositoryView
from repository.findings import MOST_SHOWN, Finding
from repository.git.bare import BareRepository
from repository.git.contents.blobs import blobs
from repository.git.contents.objects import list_tree
from repository.git.contents.tree import MODELS, TreeEntry, models_in, prefix_of
from repository.git.process import run
from repository.git.quarantine import Quarantine
from repository.git.rules import TreeBudgets, check_tree
from repository.lfs.paths import LfsPaths
from repository.lfs.threads import in_thread
from repository.snapshots import manifest
from repository.snapshots.digest import check_model
from repository.snapshots.errors import BadEntry
from repository.snapshots.write import Draft, SealedSnapshot, SnapshotWriter


@dataclass(frozen=True, slots=True)
class DeployedModel:
    """What the database knows of a model: whose it is, what is deployed, who refers to it.

    `commit` and `snapshot` are "" when nothing is deployed.
    """

    owner: str
    commit: str = ""
    snapshot: str = ""
    aliases: tuple[str, ...] = ()


@dataclass(slots=True)
class Examination:
    """All that was found in one commit. `models`: name → what was sealed, or, when nothing was to
    be sealed, None; `unchanged` are deployed exactly so already. `unseen` models were left out
    because there were findings enough."""

    findings: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    inspected: dict[str, ModelInspection] = field(default_factory=dict)
    sealed: dict[str, SealedModel] = field(default_factory=dict)
    unchanged: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    unseen: int = 0


class Examiner:
    """Looks at commits; `folders` are the model repositories, whose names cannot be pushed."""

    def __init__(
        self, database: Database, store: Path, checks: VersionChecks, folders: Sequence[Path]
    ) -> None:
        self._database = database
        self._store = store
        self._checks = checks
        self._folders = folders

    async def tree(
        self,
        bare: BareRepository,
        repository: RepositoryView,
        commit: str,
        quarantine: Quarantine | None,
    ) -> tuple[list[TreeEntry], list[Finding]]:
        """The files of a commit, and what no commit may have, whatever ref it is pushed to."""
        budgets = repository.settings.budgets
        entries = await list_tree(bare.path, commit, quarantine, budgets.max_files + 1)
        limits = TreeBudgets(budgets.max_file_bytes, budgets.max_pack_bytes, budgets.max_files)
        return entries, check_tree(entries, limits)

    async def examine(
        self,
        bare: BareRepository,
        repository: RepositoryView,
        commit: str,
        entries: Sequence[TreeEntry],
        quarantine: Quarantine | None = None,
        seal: bool = False,
    ) -> Examination:
        """The models of a commit that passed `tree`, which gave its `entries`.

        Raises GitError, OSError, DatabaseGone.
        """
        models, prefix = models_in(entries), prefix_of(entries)
        deployed = await in_thread(self._deployed_models, repository.name, set(models))
        found = Examination()
        found.removed = sorted(
            name
            for name, one in deployed.items()
            if one.owner == repository.name and one.snapshot and name not in models
        )
        found.findings += await in_thread(
            self._of_names, repository, models, prefix, deployed, found.removed
        )
        if found.findings:
            return found
        mine = {
            name: deployed[name] for name in models if name in deployed and deployed[name].commit
        }
        same = await _same_as_deployed(bare, mine, f"{commit}:{prefix}", quarantine)
        async with blobs(bare.path, quarantine) as reader:
            layout = DraftBuilder(reader, LfsPaths(self._store / LFS), repository.name)
            inspector = Inspector(self._checks, repository.settings, repository.name)
            for number, (name, below) in enumerate(models.items()):
                if len(found.findings) >= MOST_SHOWN:
                    found.unseen = len(models) - number
                    break
                if name in same:
                    found.unchanged.append(name)
                    found.sealed[name] = SealedModel(name, deployed[name].snapshot, 0, 0, {})
                    continue
                async with held(lambda: self._begin(name, deployed.get(name))) as draft:  # noqa: B023
                    await self._one(found, draft, layout, inspector, f"{prefix}{name}", below)
                    if seal and not found.findings:
                        sealed = await in_thread(draft.seal)
                        found.sealed[name] = sealed_model(sealed, found.inspected[name])
        return found

    def _begin(self, name: str, deployed: DeployedModel | None) -> AbstractContextManager[Draft]:
        snapshots = self._store / SNAPSHOTS
        beside = snapshots / deployed.snapshot if deployed and deployed.snapshot else None
        return SnapshotWriter(snapshots).begin(name, beside)

    async def _one(
        self,
        found: Examination,
        draft: Draft,
        layout: DraftBuilder,
        inspector: Inspector,
        shown: str,
        entries: Sequence[TreeEntry],
    ) -> None:
        name = shown.rpartition("/")[2]
        try:
            missing = await layout.fill(draft, f"{shown}/", entries)
        except BadEntry as error:
            found.findings.append(Finding(Path(shown), 0, 0, "E402", str(error)))
            return
        if missing:
            found.findings += missing
            return
        inspected = await inspector.inspect(draft.folder, draft.files, shown)
        found.inspected[name] = inspected
        found.findings += inspected.findings
        found.warnings += inspected.warnings
        results = [one.result_model for one in inspected.declared.steps if isinstance(one, JobStep)]
        for reason in await in_thread(self._of_results, results):
            found.findings.append(Finding(Path(shown, FILE), 0, 0, CODE, reason))
        digests = {number: one.digest for number, one in inspected.versions.items()}
        changed = await in_thread(self._changed, name, digests)
        for number in changed:
            reason = (
                f"version {number} of '{name}' exists with other bytes, and a version never "
                f"changes; restore them, and put the new ones under {shown}/{max(digests) + 1}"
            )
            found.findings.append(Finding(Path(shown, str(number)), 0, 0, "E450", reason))

    def _of_names(
        self,
        repository: RepositoryView,
        models: Mapping[str, Sequence[TreeEntry]],
        prefix: str,
        deployed: Mapping[str, DeployedModel],
        removed: Sequence[str],
    ) -> list[Finding]:
        """What is wrong before any file is opened."""
        most = repository.settings.budgets.max_models
        if len(models) > most:
            reason = f"the commit has {len(models)} models, of {most} allowed; split the repository"
            return [Finding(Path(), 0, 0, "E454", reason)]
        found = []
        for name in models:
            if complaint := self._of_name(repository.name, name, deployed.get(name)):
                found.append(Finding(Path(f"{prefix}{name}"), 0, 0, *complaint))
        for name in removed:
            if aliases := ", ".join(deployed[name].aliases):
                reason = (
                    f"removes the model '{name}', which the alias {aliases} refers to; delete that "
                    f"first (modelyard alias delete {name} {deployed[name].aliases[0]})"
                )
                found.append(Finding(Path(f"{prefix}{name}"), 0, 0, "E453", reason))
        return found + self._routed(removed, prefix)

    def _routed(self, removed: Sequence[str], prefix: str) -> list[Finding]:
        with self._database.reading() as session:
            for name in removed:
                try:
                    check_models_unrouted(session, [name])
                except Conflict as error:
                    return [Finding(Path(f"{prefix}{name}"), 0, 0, "E453", f"{error}")]
        return []

    def _of_name(
        self, repository: str, name: str, deployed: DeployedModel | None
    ) -> tuple[str, str] | None:
        try:
            check_model_name(name)
            check_model(name)
        except (Invalid, BadEntry) as error:
            return "E452", str(error)
        if name == manifest.NAME:
            return "E452", f"'{name}' is what a snapshot's own list of files is called; rename it"
        if (
            deployed is not None
            and deployed.owner != repository
            and (deployed.owner or deployed.snapshot)
        ):
            whose = (
                f"belongs to the git repository '{deployed.owner}'"
                if deployed.owner
                else "is imported"
            )
            return "E451", f"model '{name}' {whose}; rename the folder, or push it there"
        for folder in self._folders:
            if (folder / name).is_dir():
                reason = f"model '{name}' lies in the model repository folder '{folder.name}'; "
                return "E451", reason + "remove it there, or rename this one"
        return None

    def _deployed_models(self, repository: str, names: set[str]) -> dict[str, DeployedModel]:
        """The models named, and all others of the repository; blocks."""
        with self._database.reading() as session:
            query = (
                select(Model, Repository.name)
                .outerjoin(Repository, Model.repository_id == Repository.id)
                .where(Model.name.in_(names) | (Repository.name == repository))
            )
            rows = session.execute(query).all()
            aliases: dict[str, list[str]] = {}
            for alias in session.scalars(select(Alias).order_by(Alias.name)):
                aliases.setdefault(alias.model, []).append(alias.name)
            return {
                row.name: DeployedModel(
                    owner or "",
                    row.commit if row.snapshot_digest else "",
                    row.snapshot_digest or "",
                    tuple(aliases.get(row.name, ())),
                )
                for row, owner in rows
            }

    def _of_results(self, models: Sequence[str]) -> list[str]:
        """What keeps jobs from making versions of these models; blocks."""
        found = []
        with self._database.reading() as session:
            for model in filter(None, models):
                try:
                    check_result(session, model, self._folders)
                except ControlError as error:
                    found.append(str(error))
        return found

    def _changed(self, model: str, digests: Mapping[int, str]) -> list[int]:
        with self._database.reading() as session:
            return changed_versions(session, model, digests)


async def _same_as_deployed(
    bare: BareRepository,
    deployed: Mapping[str, DeployedModel],
    root: str,
    quarantine: Quarantine | None,
) -> set[str]:
    """The models whose folder below `root`, "COMMIT:models/", is as it was when they were deployed.

    One question to git, however many commits they come from. A commit that is gone from git
    counts as another one.
    """
    names = [
        f"{place}{name}"
        for name, one in deployed.items()
        for place in (root, f"{one.commit}:{MODELS}/", f"{one.commit}:")
    ]
    command = ("cat-file", "--batch-check=%(objectname) %(objecttype)")
    lines = "".join(f"{line}\n" for line in names).encode()
    answer = (await run(bare.path, *command, stdin=lines, quarantine=quarantine)).stdout
    found = [line if line.endswith(b" tree") else b"" for line in answer.split(b"\n")]
    now, below, top = found[0::3], found[1::3], found[2::3]
    return {
        name
        for name, one, in_models, at_top in zip(deployed, now, below, top, strict=False)
        if one and one == (in_models or at_top)
    }


def sealed_model(sealed: SealedSnapshot, inspected: ModelInspection) -> SealedModel:
    """A snapshot as rows take it over, with what was found when it was looked at."""
    files = sum(len(one.files) for one in sealed.versions.values())
    return SealedModel(
        sealed.model, sealed.digest, sealed.size_bytes, files, dict(inspected.versions)
    )
