"""A worker as its settings say: what its jobs share, and Celery around it."""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from google.protobuf import text_format

from backends.environments.sources import PackageSources
from backends.environments.store import EnvironmentStore
from backends.errors import LoadFailed
from control import state_paths
from control.jobs.policy.admission import AdmissionRules, WorkerIdentity
from control.sql.database import Database
from jobs.environments.environments import ToolEnvironments
from jobs.process.program import ROOT, TOOLS
from jobs.worker.attempt import WorkerContext
from jobs.worker.broker import broker_of
from jobs.worker.folders import CannotRead
from jobs.worker.loop import listen
from jobs.worker.worker import JobWorker
from repository.config.read import decode, parse
from repository.errors import ConfigError
from repository.model import ModelConfig, ModelVersion
from repository.sandbox.orphans import adopt
from repository.sandbox.scratch import ScratchFolders
from server.fleet.confine import confined_checker
from server.job_worker.confine import build_sandbox, job_sandbox, sandbox_report
from server.job_worker.folders import (
    broker_folder,
    clear_scratch,
    environments_folder,
    scratch_shelf,
)
from server.settings.table import Settings

_log = logging.getLogger(__name__)
_CONFIG = "config.pbtxt"


@dataclass(frozen=True, slots=True)
class JobTools:
    """What jobs' processes run: `main()` of `module`, found below `roots`."""

    module: str = TOOLS
    roots: tuple[str, ...] = (str(ROOT),)


def run_worker(settings: Settings, queues: Sequence[str], tools: JobTools | None = None) -> None:
    """Run jobs until SIGTERM; blocks, on the main thread. Raises ControlError where the database
    cannot be opened, OSError."""
    tools = tools or JobTools()
    adopt()  # each job's process ends what is left of its own
    clear_scratch(settings)
    scratch = ScratchFolders(scratch_shelf(settings))
    _log.info("jobs: %s", sandbox_report(settings))
    database = Database(settings.database_url)
    name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    identity = WorkerIdentity(name, socket.gethostname(), frozenset(queues))
    rules = AdmissionRules(heavy_per_machine=settings.job_heavy_slots)
    worker = JobWorker(_context(settings, database, scratch, tools), identity, rules)
    try:
        broker = broker_of(settings.job_broker, broker_folder(settings))
        listen(broker, queues, worker, settings.job_slots, name)
    finally:
        scratch.close()
        database.close()


def _context(
    settings: Settings, database: Database, scratch: ScratchFolders, tools: JobTools
) -> WorkerContext:
    sockets = state_paths.socket_folder(settings.state_dir)
    store = EnvironmentStore(environments_folder(settings), settings.environment_cache_limit)
    store.sweep()
    sources = PackageSources(
        settings.environment_index,
        settings.environment_wheel_dir,
        settings.environment_builds == "on",
        Path.home(),
    )
    environments = ToolEnvironments(
        store,
        partial(build_sandbox, settings, sockets),
        sources,
        settings.job_environment_timeout_secs,
    )
    return WorkerContext(
        database=database,
        store=settings.store_folder.absolute(),
        scratch=scratch,
        environments=environments,
        sandbox_of=partial(job_sandbox, settings, sockets),
        complete=partial(_complete, settings, sockets),
        data_roots=settings.job_data_dir,
        module=tools.module,
        roots=tools.roots,
    )


def _complete(settings: Settings, sockets: Path, name: str, number: int, folder: Path) -> str:
    """The config of a version as it is in force, as text. Raises CannotRead."""
    where = f"model '{name}' version {number}"
    path = folder / _CONFIG
    try:
        config = parse(decode(path.read_bytes(), path), path) if path.exists() else ModelConfig()
    except (OSError, ConfigError) as error:
        raise CannotRead(f"{where}: its config cannot be read: {error}") from error
    if not config.name:
        config.name = name
    version = ModelVersion(name, number, folder, folder / str(number), config, "")
    try:
        completed = asyncio.run(_checked(settings, sockets, version))
    except LoadFailed as error:
        raise CannotRead(f"{where} cannot be read: {error}") from error
    return text_format.MessageToString(completed)


async def _checked(settings: Settings, sockets: Path, version: ModelVersion) -> ModelConfig:
    checker = confined_checker(settings, sockets)
    try:
        return await checker.complete(version)
    finally:
        await checker.close()
