"""An engine in a process of its own, as the gateway sees it: messages go there and come back.

What a `HostedInstance` is to batches: spawned, watched, restarted with growing pauses. The one
thing it does not do is `execute`: `schedulers.llm.gateway.language_scheduler` posts requests, and
receives what comes back.
"""

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace

from backends.errors import LoadFailed
from backends.llm.settings import read_settings
from backends.process.duplex import Duplex
from backends.process.instance import HostedInstance
from backends.process.messages import WorkerLoaded
from backends.process.reply_validation import NONSENSE
from backends.process.worker_process import WorkerProcess, WorkerProgram, WorkerSpec
from backends.process.worker_session import WorkerSession
from backends.seam import Device
from repository.model import ModelVersion
from repository.process.channel import ChannelMessage
from repository.process.child import REAP_SECS
from repository.sandbox.confinement import Confinement
from schedulers.llm.engine_messages import Close, EngineOpened, Message, decode


def start_engine(
    version: ModelVersion,
    device: Device,
    name: str,
    load_timeout_secs: float = 600.0,
    confinement: Confinement | None = None,
) -> "EngineInstance":
    """An engine that has loaded a version whose config is complete; blocks. Raises LoadFailed."""
    threads = read_settings(version).threads or device.threads
    device = replace(device, threads=threads)
    return EngineInstance(version, device, name, load_timeout_secs, confinement)


class EngineInstance(HostedInstance):
    """`on_message(message)` is called on a thread of the engine's, for each that it sends.

    `opened`: what it sent of itself when it was last started.
    """

    opened: EngineOpened

    def __init__(
        self,
        version: ModelVersion,
        device: Device,
        name: str,
        load_timeout_secs: float = 600.0,
        confinement: Confinement | None = None,
    ) -> None:
        """Spawn and load; blocks. Raises LoadFailed and leaves no process then."""
        self.on_message: Callable[[Message], None] = lambda message: None
        program = _program(device.threads)._replace(confinement=confinement)
        super().__init__(
            version, device, name, load_timeout_secs=load_timeout_secs, program=program
        )

    def post(self, message: Message) -> bool:
        """Send a message soon; never blocks. False when there is no engine to receive it."""
        current = self._current
        if not isinstance(current, EngineSession):
            return False
        current.post(message)
        return True

    def kill(self, verdict: str) -> None:
        """Kill the process; it is restarted like any that died."""
        current = self._current
        if current is not None:
            current.process.kill(verdict)

    def _converse(self, process: WorkerProcess) -> WorkerSession:
        return EngineSession(self._plan, process, self._receive)

    def _receive(self, message: Message) -> None:
        if isinstance(message, EngineOpened):
            self.opened = message
        else:
            self.on_message(message)


class EngineSession(WorkerSession):
    """One process of an engine: loaded like any worker, then sends at any time."""

    def __init__(
        self, plan: WorkerSpec, process: WorkerProcess, on_message: Callable[[Message], None]
    ) -> None:
        super().__init__(plan, process)
        self._on_message = on_message
        self._duplex: Duplex | None = None

    def load(self) -> WorkerLoaded:
        loaded = super().load()
        try:
            received = self.process.channel.receive(self._plan.load_secs)
            self._on_message(decode(received.payload))
        except (EOFError, OSError, ValueError, TypeError, IndexError) as error:
            raise LoadFailed(f"{self._plan.where}: the engine sent nothing more: {error}") from None
        self._duplex = Duplex(self.process.channel, self._plan.name, self._read, lambda: None)
        self._duplex.start()
        return loaded

    def post(self, message: Message) -> None:
        if self._duplex is not None:
            self._duplex.send(message)

    def finalize(self, within_secs: float) -> None:
        """Ask the engine to exit; end it by force after `within_secs`."""
        with contextlib.suppress(OSError):
            self.post(Close())
        if not self.process.gone.wait(within_secs):
            self.process.terminate()

    def close(self) -> None:
        if self.process.gone.wait(REAP_SECS) and self._duplex is not None:
            self._duplex.join()
        super().close()

    def _read(self, received: ChannelMessage) -> None:
        """End an engine that sends what is no message, and read no more of it."""
        try:
            if received.fd >= 0:
                os.close(received.fd)
                raise ValueError("an unexpected descriptor")
            self._on_message(decode(received.payload))
        except NONSENSE as error:
            self.process.kill(f"sent an invalid message ({error}) and was killed")
            raise EOFError from error


def _program(threads: int) -> WorkerProgram:
    """Threads that hardly spin: where others want the cores, spinning ones wait for one that does
    not run (docs/llm.md)."""
    count = str(threads)
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {**dict.fromkeys(names, count), "GOMP_SPINCOUNT": "10000"}
    environment["TOKENIZERS_PARALLELISM"] = "false"
    return WorkerProgram("schedulers.llm.engine.process", tuple(environment.items()), "engine")
