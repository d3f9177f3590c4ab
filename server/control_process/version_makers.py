"""The pumps that make versions of what did not come by git: imports and results of jobs."""

from collections.abc import Callable

from control.git.push.version_checks import VersionChecks
from control.imports.importer import Importer, ImportRules
from control.imports.sealing import ImportSealer
from control.loops.wake_event import IdleSeconds
from control.publishing.publisher import JobPublisher
from control.sql.database import Database
from server.settings.table import Settings


def version_makers(
    settings: Settings,
    database: Database,
    checks: VersionChecks,
    boot: str,
    notify: Callable[[], None],
    idle_s: IdleSeconds,
) -> tuple[Importer, JobPublisher]:
    """`notify` is called once new desired state may be read."""
    store, folders = settings.store_folder, settings.model_repository
    sealer = ImportSealer(database, store, checks)
    rules = ImportRules(settings.import_allow, folders)
    importer = Importer(database, store, sealer, rules, boot, notify, idle_s)
    return importer, JobPublisher(database, store, sealer, folders, boot, notify, idle_s)
