"""An Instance whose process may die: the parent's side of a hosted model.

A batch comes from a scheduler's thread; it goes into the current `WorkerSession`, and the results
come back the same way. When its process dies, the batch fails at once, `ready` turns off, and a
thread of its own starts the next process, sooner or later (`restart`).
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from backends.errors import InstanceDied, LoadFailed
from backends.limits import NO_LIMIT, ExecutionLimit
from backends.process.health.crash_history import CrashHistory
from backends.process.interpreter import nothing
from backends.process.messages import WorkerLoaded
from backends.process.worker_process import WORKER, WorkerProcess, WorkerProgram, WorkerSpec
from backends.process.worker_session import WorkerSession
from backends.seam import Batch, BatchResult, Device, ResponseSender
from repository.model import ModelConfig, ModelVersion
from repository.process.backoff import Backoff

_logger = logging.getLogger(__name__)
_FINALIZE_SECS = 5.0
_REVIVER_SECS = 30.0
"""How long the thread that restarts a worker may take to notice that the instance is closed."""


class HostedInstance:
    """One instance of `version` in a worker process of its own; implements `Instance`.

    `load_timeout_secs` bounds every load, also after a death. `limit`: a worker that executes for
    longer without progress is killed and restarted. `heartbeat_timeout_secs`: so is one that is
    idle or stopped by a signal and answers no heartbeat for so long. `config` is the one the worker
    completed; `deaths` counts ready workers that died, `crash_history` has the latest of them.
    `calling`: set by the owner, called on the loop when the model begins to wait for another one.
    """

    def __init__(
        self,
        version: ModelVersion,
        device: Device,
        name: str,
        *,
        load_timeout_secs: float = 600.0,
        limit: ExecutionLimit = NO_LIMIT,
        heartbeat_timeout_secs: float = 15.0,
        program: WorkerProgram = WORKER,
    ) -> None:
        """Spawn and load; blocks. Raises `LoadFailed` and leaves no process then."""
        self.ready = False
        self.deaths = 0
        self.crash_history = CrashHistory()
        self.changed: Callable[[], None] = lambda: None
        self.calling: Callable[[], None] = lambda: None
        self._plan = WorkerSpec(
            version,
            device,
            name,
            load_timeout_secs,
            limit,
            heartbeat_timeout_secs,
            program,
        )
        self._backoff = Backoff()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._current: WorkerSession | None = None
        self._starting: WorkerProcess | None = None
        self._reviver: threading.Thread | None = None
        self._release = program.interpreter.hold() if program.interpreter else nothing
        try:
            started, self._loaded = self._start()
        except OSError as error:
            self._release()
            raise LoadFailed(f"{self._plan.where}: no worker process: {error}") from error
        except BaseException:
            self._release()
            raise
        self.config = ModelConfig.FromString(self._loaded.config)
        self.device = self._loaded.device
        self.cores = self._loaded.cores
        self.streams = self._loaded.streams
        if not self._install(started):
            ending = started.process.ending()
            started.close()
            self._release()
            raise LoadFailed(f"{self._plan.where}: the worker process {ending} right after loading")

    @property
    def pid(self) -> int | None:
        """The worker's process id; None while none is ready."""
        current = self._current
        return current.process.pid if current else None

    @property
    def spec(self) -> WorkerSpec:
        """The same for every life of its worker."""
        return self._plan

    @property
    def sandbox(self) -> str:
        """What confines the worker, for people: "default, no network", or "off"."""
        confinement = self._plan.program.confinement
        return confinement.words if confinement else "off"

    @property
    def state_bytes(self) -> int:
        """That the states of sequences took in the worker after its last batch."""
        current = self._current
        return current.state_bytes if current else 0

    def execute(self, batch: Batch) -> BatchResult:
        """Run one batch in the worker; see `backends.seam.Instance`. Waits without the GIL."""
        current = self._current
        if current is None:
            raise self._dead()
        return current.execute(batch)

    def stream(self, batch: Batch, outlets: Sequence[ResponseSender]) -> BatchResult:
        """Hand one batch to the worker; see `backends.seam.StreamingInstance`. When the worker
        dies, every open outlet ends with `InstanceDied` at once."""
        current = self._current
        if current is None:
            raise self._dead()
        return current.stream(batch, outlets)

    def ask_ready(self) -> "Future[bool] | None":
        """What the model's own `is_ready` says; None where it has none."""
        current = self._current
        if not self._loaded.checks_ready or current is None:
            return None
        return current.process.ask_ready()

    def cancel(self, batch: Batch, member: int) -> None:
        """Let the model see that nobody waits for this member any more."""
        current = self._current
        if current is not None:
            current.cancel(batch, member)

    def close(self) -> None:
        """Finalize the model and end its process: 5 s, then SIGTERM, then SIGKILL; while a batch
        executes, no time to finalize. Idempotent."""
        self._closing.set()
        with self._lock:
            current, self._current, self.ready = self._current, None, False
            starting, reviver = self._starting, self._reviver
        if starting is not None:
            starting.kill("was closed while it loaded")
        if current is not None:
            current.finalize(_FINALIZE_SECS)
            current.close()
        if reviver is not None:
            reviver.join(_REVIVER_SECS)
        if self._plan.program.calls is not None:
            self._plan.program.calls.forget(self._plan)
        self._release()

    def _dead(self) -> InstanceDied:
        return InstanceDied(
            f"{self._plan.where}: the worker process of instance '{self._plan.name}' has "
            "died and is being restarted"
        )

    def _converse(self, process: WorkerProcess) -> WorkerSession:
        """How this instance talks with its process; an engine's has another way."""
        return WorkerSession(self._plan, process, lambda: self.calling())

    def _start(self) -> tuple[WorkerSession, WorkerLoaded]:
        """A loaded worker. Raises `LoadFailed` or `OSError`; nothing is left of it then."""
        process = WorkerProcess(self._plan, self._when_ended)
        started = self._converse(process)
        with self._lock:
            self._starting = process
        try:
            if self._closing.is_set():
                raise LoadFailed(f"{self._plan.where} was closed while it loaded")
            return started, started.load()
        except BaseException:
            process.kill("could not load")
            started.close()
            raise
        finally:
            with self._lock:
                self._starting = None

    def _install(self, started: WorkerSession) -> bool:
        """Make a loaded worker the current one; False when it is dead or unwanted by now."""
        with self._lock:
            if started.process.ended or self._closing.is_set():
                return False
            self._current, self.ready = started, True
        self.changed()
        return True

    def _when_ended(self, process: WorkerProcess) -> None:
        """Called from the watching thread, once per process."""
        with self._lock:
            dead = self._current
            if dead is None or process is not dead.process:
                return  # never became ready, or is being closed: whoever did that cleans up
            self._current, self.ready = None, False
            self.deaths += 1
            self._reviver = threading.Thread(
                target=self._revive, args=(dead,), name=f"revive {self._plan.name}", daemon=True
            )
            self._reviver.start()
        self.changed()

    def _revive(self, dead: WorkerSession) -> None:
        """Close the dead worker; start others until one is ready or the instance is closed."""
        name, where = self._plan.name, self._plan.where
        lived_secs = time.monotonic() - dead.process.started
        ending = dead.process.ending()
        self.crash_history = self.crash_history.then(time.time(), ending)
        _logger.error("%s: the worker process of instance '%s' %s", where, name, ending)
        dead.close()
        while not self._closing.wait(self._backoff.after(lived_secs)):
            lived_secs = 0.0
            try:
                started, loaded = self._start()
            except (LoadFailed, OSError) as error:
                _logger.error("instance '%s' cannot be restarted: %s", name, error)
                continue
            if loaded.config != self._loaded.config:
                _logger.error("%s completes its config differently than before", where)
            elif self._install(started):
                _logger.info("%s: instance '%s' is ready again", where, name)
                return
            started.process.kill("is not needed")
            started.close()
