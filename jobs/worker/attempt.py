"""One attempt at a job that is claimed: its environment, its sources, its process, its result."""

import logging
import os
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from control.errors import DatabaseGone, LostLease, NotFound
from control.jobs import folders as job_folders
from control.jobs.claims import (
    AttemptCancelled,
    AttemptDone,
    AttemptFailed,
    AttemptInterrupted,
    AttemptRefused,
    ClaimedJob,
    Outcome,
    finish,
)
from control.jobs.messages import Task
from control.jobs.policy.limits import JobCost
from control.jobs.report import Report
from control.jobs.service import FILES, SOURCE, get_traffic
from control.jobs.specs.profile import ProfileSpec
from control.jobs.traffic import SAMPLED
from control.sql.database import Database
from jobs.environments.choose import environment_of, starts_programs
from jobs.environments.environments import EnvironmentFailed, ToolEnvironment, ToolEnvironments
from jobs.process.ending import JobEnd
from jobs.process.job_process import JobProcess
from jobs.process.limits import ProcessLimits
from jobs.process.program import ROOT, TOOLS, JobProgram
from jobs.worker.folders import (
    CONFIG,
    AttemptFolders,
    CannotRead,
    CompleteConfig,
    data_path,
    model_folder,
    read_version,
)
from jobs.worker.keeper import GONE_SECS, LeaseKeeper
from jobs.worker.labels import carry_labels
from jobs.worker.programs import check_programs
from jobs.worker.results import BadResult, keep_result
from repository.sandbox.policy import Sandbox
from repository.sandbox.scratch import ScratchFolders

SandboxOf = Callable[[tuple[str, ...], tuple[str, ...]], Sandbox | None]
"""What confines a job's process that reads some paths and writes below others; None for nothing."""

MOST_CONFIG_BYTES = 1 << 20
"""Of a result's config, as far as it is looked at here."""

STOPPING_SECS = 10.0
"""Longest a worker that stops waits for the database, to give a job back."""
_AGAIN_SECS = 1.0
_log = logging.getLogger(__name__)


class WorkerContext(NamedTuple):
    """What all attempts of one worker share.

    store: the folder of snapshots and results. data_roots: folders whose files a spec may name.
    module, roots: what a job's process runs, and from where. grace_secs: see `ProcessLimits`.
    """

    database: Database
    store: Path
    scratch: ScratchFolders
    environments: ToolEnvironments
    sandbox_of: SandboxOf
    complete: CompleteConfig
    data_roots: tuple[Path, ...] = ()
    module: str = TOOLS
    roots: tuple[str, ...] = (str(ROOT),)
    grace_secs: float = 10.0


class Attempt:
    """One attempt; `run` blocks until the claim is given up, one way or another."""

    def __init__(self, context: WorkerContext, claim: ClaimedJob) -> None:
        self._context = context
        self._claim = claim
        self._keeper = LeaseKeeper(context.database, claim)
        self._began = time.monotonic()

    def interrupt(self) -> None:
        """The worker stops: the process is killed and the job waits for another worker."""
        self._keeper.interrupt()

    def run(self) -> None:
        """Never raises for what goes wrong with the job. Nothing remains but the result."""
        with self._keeper:
            try:
                outcome = self._in_scratch()
            except Exception as error:  # noqa: BLE001 - the job must not hang in "running" for a bug of ours
                _log.exception("job %s: the worker failed. This is a bug.", self._claim.id)
                outcome = AttemptFailed(
                    f"the worker failed: {type(error).__name__}: {error}", again=True
                )
        if self._keeper.cause != "lost":
            self._finish(self._settled(outcome))

    def _in_scratch(self) -> Outcome:
        scratch = self._context.scratch
        try:
            root = scratch.make()
            try:
                return self._in_folders(AttemptFolders(root))
            finally:
                scratch.remove(root)
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            return AttemptFailed(f"the worker met {error.strerror or error}{where}", again=True)

    def _in_folders(self, folders: AttemptFolders) -> Outcome:
        folders.make()
        claim, keeper = self._claim, self._keeper
        try:
            task = self._task(folders)
            with self._environment() as environment:
                if keeper.stopped():
                    return AttemptInterrupted()
                end = self._run_process(folders, task, environment)
        except CannotRead as error:
            return AttemptRefused(str(error))
        except EnvironmentFailed as error:
            return AttemptFailed(str(error))
        outcome = _outcome(end)
        if isinstance(outcome, AttemptDone) and outcome.report.verdict == "accepted":
            keeper.tell("keeping the result")
            store = self._context.store
            try:
                carry_labels(_config_of(folders.output), Path(task.source), folders.output)
                target = job_folders.output_folder(store, claim.id, claim.fence)
                keep_result(folders.output, target, claim.limits.output_bytes)
            except BadResult as error:
                return AttemptFailed(str(error))
        return outcome

    def _environment(self) -> ToolEnvironment:
        name = environment_of(self._claim.spec)
        keeper = self._keeper
        return self._context.environments.obtain(name, keeper.tell, keeper.stopped)

    def _task(self, folders: AttemptFolders) -> Task:
        """Raises CannotRead, OSError."""
        context, claim = self._context, self._claim
        paths = {}
        for role, source in claim.sources.items():
            if role == FILES:
                continue
            self._keeper.tell(f"reading model '{source.model}' version {source.version}")
            target = folders.sources / role
            read_version(context.store, source, context.complete, target)
            check_programs(claim.spec, target)
            paths[role] = str(target)
        data = self._data(folders)
        task = Task(
            job=claim.id,
            spec=claim.spec,
            source=paths.pop(SOURCE),
            sources=paths,
            data=data,
            output=str(folders.output),
            scratch=str(folders.scratch),
            threads=claim.limits.threads,
            seed=zlib.crc32(claim.id.encode()),
        )
        folders.task_file.write_bytes(msgspec.json.encode(task))
        return task

    def _data(self, folders: AttemptFolders) -> str:
        """The data that the spec names; sampled requests are written down first. Raises CannotRead,
        OSError."""
        context, claim = self._context, self._claim
        named = str(getattr(claim.spec, "data", ""))
        if not named:
            return ""
        if isinstance(claim.spec, ProfileSpec) and named == SAMPLED:
            try:
                with context.database.reading() as session:
                    folders.traffic.write_bytes(get_traffic(session, claim.id))
            except NotFound as error:
                raise CannotRead(str(error)) from error
            return str(folders.traffic)
        source = claim.sources.get(FILES, claim.sources[SOURCE])
        model = model_folder(context.store, source)
        version = model / str(source.version)
        return str(data_path(version, model, context.data_roots, named))

    def _run_process(
        self, folders: AttemptFolders, task: Task, environment: ToolEnvironment
    ) -> JobEnd:
        context, limits = self._context, self._claim.limits
        root = str(folders.root)
        readable = (root, *environment.readable, *([task.data] if task.data else []))
        writable = (str(folders.output), str(folders.scratch))
        program = JobProgram(
            python=environment.python or sys.executable,
            task_file=folders.task_file,
            output=folders.output,
            scratch=folders.scratch,
            sandbox=self._sandbox(readable, writable),
            title=f"modelyard job {task.job}",
            module=context.module,
            roots=context.roots,
        )
        bounds = ProcessLimits(
            memory_bytes=limits.memory_bytes,
            cpu_secs=limits.cpu_s,
            wall_secs=limits.wall_s,
            disk_bytes=limits.disk_bytes,
            output_bytes=limits.output_bytes,
            threads=limits.threads,
            grace_secs=context.grace_secs,
        )
        process = JobProcess(program, bounds)
        self._keeper.watch(process)
        return process.run()

    def _sandbox(self, readable: tuple[str, ...], writable: tuple[str, ...]) -> Sandbox | None:
        """The context's, without other processes where the tool needs none: no other bound of the
        kernel holds for those of root. A profile starts a server, which listens on a Unix socket
        and whose own processes lead groups; it runs no code of the model's."""
        sandbox = self._context.sandbox_of(readable, writable)
        if sandbox is None:
            return None
        if isinstance(self._claim.spec, ProfileSpec):
            return sandbox._replace(unix_sockets=True, leave_group=True)
        return sandbox._replace(fork=starts_programs(self._claim.spec))

    def _settled(self, outcome: Outcome) -> Outcome:
        """Where the work was ended from outside, that counts, unless it was done by then."""
        if isinstance(outcome, AttemptDone):
            return outcome
        if self._keeper.cause == "interrupted":
            return AttemptInterrupted()
        return AttemptCancelled() if self._keeper.cause == "cancelled" else outcome

    def _finish(self, outcome: Outcome) -> None:
        """Until the database has it, or the claim is over."""
        news = self._keeper.unwritten()
        cost = JobCost(time.monotonic() - self._began, news.cpu_secs, news.peak_bytes)
        began, told = time.monotonic(), (cost, news.lines, news.points)
        while True:
            try:
                state = finish(self._context.database, self._claim, outcome, *told)
            except LostLease as error:
                _log.warning("job %s: %s; its result is dropped", self._claim.id, error)
            except DatabaseGone as error:
                _log.debug("job %s: %s", self._claim.id, error)
                if time.monotonic() - began < self._patience():
                    time.sleep(_AGAIN_SECS)
                    continue
                _log.error("job %s: %s; its result is dropped", self._claim.id, error)
            except Exception:  # noqa: BLE001 - the worker's other jobs go on; this one is swept up
                _log.exception("job %s: its end cannot be told. This is a bug.", self._claim.id)
            else:
                _log.info("job %s is %s", self._claim.id, state)
            return

    def _patience(self) -> float:
        """How long a database that does not answer is waited for."""
        return STOPPING_SECS if self._keeper.cause == "interrupted" else GONE_SECS


def _config_of(output: Path) -> str:
    """The config that the process wrote; "" for none, which the publisher speaks of."""
    path = output / CONFIG
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with open(descriptor, "rb") as file:
        return file.read(MOST_CONFIG_BYTES).decode(errors="replace")


def _outcome(end: JobEnd) -> Outcome:
    if end.outcome == "finished":
        assert isinstance(end.report, Report)
        return AttemptDone(end.report)
    if end.outcome == "refused":
        return AttemptRefused(end.reason)
    if end.outcome == "cancelled":
        return AttemptCancelled()
    if end.outcome == "abandoned":
        return AttemptInterrupted()
    return AttemptFailed(end.reason, again=end.again)
