"""Run one job's process to its end: read what it says, look at what it takes, end what is over."""

import logging
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from control.jobs.messages import CurvePoint, JobProgress, Message, Note
from jobs.process.ending import Ended, JobEnd, Verdict, cpu_words, job_end
from jobs.process.limits import ProcessLimits, secs_text, size_text
from jobs.process.membership import JobMembers, running
from jobs.process.message_reader import BadMessage, MessageReader
from jobs.process.output import OutputTail, printable
from jobs.process.program import LEADER, JobProgram, command, environment
from jobs.process.usage import JobUsage, is_group_alive, unlinked_bytes, usage_of
from repository.files.owner import token_of
from repository.tree import TreeSize, size_of

LOOK_SECS = 0.1
"""Between two looks at processes and memory: a process takes 300 MiB meanwhile, and one that forks
without end has some hundreds by then."""
DISK_LOOK_SECS, DISK_SHARE = 1.0, 0.05
"""Between two looks at the disk, which take this share of the time at most."""
LAST_SECS = 10.0
"""How long a process may go on behind its last message."""
KILLED_SECS = 10.0
"""How long killed processes may take to end: one that waits for a disk ends when that answers."""
MOST_POINTS = 2000
"""Of curves that wait to be taken; of more, every second one is dropped."""
_log = logging.getLogger(__name__)
_READ_BYTES = 1 << 16
_READS_AT_ONCE = 16
_KILLED_LOOK_SECS = 0.01


class JobNews(NamedTuple):
    """What a process has said since the last time, and what it has taken by now. `lines`: of its
    log, without those that came too fast."""

    progress: JobProgress
    points: list[CurvePoint]
    lines: list[str]
    cpu_secs: float
    peak_bytes: int
    disk_bytes: int


class JobProcess:
    """One job's process, from its start to its end.

    `run` blocks and must be called on a thread that lives as long as the process: the kernel ends
    the one with the other. All other methods may be called by any thread, at any time.
    """

    def __init__(self, program: JobProgram, limits: ProcessLimits) -> None:
        self._program = program
        self._limits = limits
        self._lock = threading.Lock()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._closed = False
        self._verdict: Verdict | None = None
        self._kill_at = 0.0
        self._is_asked = False
        self._progress = JobProgress(0.0, "")
        self._points: list[CurvePoint] = []
        self._tail = OutputTail()
        self._reader = MessageReader()
        self._usage = JobUsage()
        self._ended_cpu_secs = 0.0
        self._peak_bytes = 0
        self._disk_bytes = 0

    def cancel(self) -> None:
        """End it by SIGTERM, and by SIGKILL when the grace is over."""
        self._condemn(Verdict("cancelled", "was cancelled"), self._limits.grace_secs)

    def abandon(self, why: str) -> None:
        """Kill it: its result is not wanted here any more."""
        self._condemn(Verdict("abandoned", why), 0.0)

    def take_news(self) -> JobNews:
        """What has come since the last call."""
        with self._lock:
            points, self._points = self._points, []
            lines = self._tail.take()
            cpu_secs = max(self._ended_cpu_secs, self._usage.cpu_secs)
            used = (cpu_secs, self._peak_bytes, self._disk_bytes)
            return JobNews(self._progress, points, lines, *used)

    def run(self) -> JobEnd:
        """Start it, and see it to its end; nothing of it remains. Raises OSError where there is no
        room for a process."""
        self._began = time.monotonic()
        messages_out, messages_in = os.pipe2(os.O_CLOEXEC)
        try:
            try:
                process = self._start(messages_in)
            finally:
                os.close(messages_in)
            assert process.stdout is not None
            members = self._members(process.pid)
            with process.stdout, running(members):
                try:
                    self._note_leader(process.pid)
                    self._follow(process, members, messages_out)
                finally:
                    status = self._reap(process, members)
                self._drain(messages_out, self._take_messages)
                self._drain(process.stdout.fileno(), self._take_printed)
            self._look_at_disk()
        finally:
            os.close(messages_out)
            with self._lock:
                self._closed = True
                os.close(self._wake)
        with self._lock:
            self._tail.end()
            lines = self._tail.lines()
        ended = Ended(status, lines, self._reader.last, self._reader.has_half_line)
        return job_end(ended, self._verdict, self._limits)

    def _start(self, descriptor: int) -> "subprocess.Popen[bytes]":
        program, limits = self._program, self._limits
        return subprocess.Popen(
            command(program, limits, descriptor),
            bufsize=0,
            env=environment(program, limits, os.environ),
            cwd=program.scratch,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(descriptor,),
            start_new_session=True,
        )

    def _note_leader(self, leader: int) -> None:
        """For who finds the folder when this process was killed."""
        with suppress(OSError):  # a full disk; the environment of most tells as well
            self._program.task_file.with_name(LEADER).write_text(token_of(leader))

    def _members(self, leader: int) -> JobMembers:
        sandbox = self._program.sandbox
        strays = sandbox is None or sandbox.leave_group
        return JobMembers(leader, os.fsencode(self._program.scratch), strays)

    def _follow(
        self, process: "subprocess.Popen[bytes]", members: JobMembers, messages: int
    ) -> None:
        """Until its first process has ended, or should have long ago."""
        assert process.stdout is not None
        printed = process.stdout.fileno()
        pidfd = os.pidfd_open(process.pid)
        readers = {messages: self._take_messages, printed: self._take_printed}
        for descriptor in readers:
            os.set_blocking(descriptor, False)
        looked = 0.0
        try:
            with self._watching_disk(members), selectors.DefaultSelector() as selector:
                for descriptor in (pidfd, self._wake, *readers):
                    selector.register(descriptor, selectors.EVENT_READ)
                while not self._is_overdue():
                    ready = {key.fd for key, _ in selector.select(LOOK_SECS)}
                    if pidfd in ready:
                        return
                    for descriptor in ready & readers.keys():
                        if not self._read(descriptor, readers[descriptor]):
                            selector.unregister(descriptor)
                    if self._wake in ready:
                        os.eventfd_read(self._wake)
                    now = time.monotonic()
                    if now - looked >= LOOK_SECS:
                        self._look(members)
                        looked = now
                    self._enforce(process.pid, now)
        finally:
            os.close(pidfd)

    def _read(self, descriptor: int, take: Callable[[bytes], None]) -> bool:
        """Take what there is, up to a bound; False at the stream's end."""
        for _ in range(_READS_AT_ONCE):
            try:
                chunk = os.read(descriptor, _READ_BYTES)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            take(chunk)
        return True

    def _drain(self, descriptor: int, take: Callable[[bytes], None]) -> None:
        """What is left in a pipe that nobody writes to any more."""
        while True:
            try:
                chunk = os.read(descriptor, _READ_BYTES)
            except BlockingIOError:
                return
            if not chunk:
                return
            take(chunk)

    def _take_messages(self, chunk: bytes) -> None:
        if self._verdict is not None and self._verdict.outcome == "failed":
            return
        try:
            messages = self._reader.feed(chunk)
        except BadMessage as error:
            self._fail(str(error))
            return
        with self._lock:
            for message in messages:
                self._take(message)
        if self._reader.last is not None and not self._kill_at:
            self._kill_at = time.monotonic() + LAST_SECS

    def _take(self, message: Message) -> None:
        if isinstance(message, JobProgress):
            fraction = min(1.0, max(self._progress.fraction, message.fraction))
            self._progress = JobProgress(fraction, printable(message.text[:200]))
        elif isinstance(message, CurvePoint):
            self._points.append(message)
            if len(self._points) > MOST_POINTS:
                self._points = self._points[::2]
        elif isinstance(message, Note):
            self._tail.add(message.text)

    def _take_printed(self, chunk: bytes) -> None:
        with self._lock:
            self._tail.feed(chunk)
        limit = self._limits.printed_bytes
        if self._tail.total_bytes > limit:
            self._fail(f"printed more than its limit of {size_text(limit)}")

    def _look(self, members: JobMembers) -> None:
        limits = self._limits
        pids = members.find(limits.processes + 1)
        if len(pids) > limits.processes:
            self._fail(f"started more processes than its limit of {limits.processes}")
            return
        usage = usage_of(pids, limits.memory_bytes)
        if usage.threads > limits.all_threads:
            self._fail(f"started more threads than its limit of {limits.all_threads}")
        with self._lock:
            self._usage = usage
            self._peak_bytes = max(self._peak_bytes, usage.memory_bytes)
        if usage.memory_bytes > limits.memory_bytes:
            self._fail(
                f"took {size_text(usage.memory_bytes)} of memory, more than its limit of "
                f"{size_text(limits.memory_bytes)}"
            )
        if usage.cpu_secs > limits.cpu_secs:
            self._fail(cpu_words(limits))
        if time.monotonic() - self._began > limits.wall_secs:
            words = f"took longer than its limit of {secs_text(limits.wall_secs)}"
            self._condemn(Verdict("failed", words), limits.grace_secs)

    @contextmanager
    def _watching_disk(self, members: JobMembers) -> Iterator[None]:
        """On a thread of its own: a disk that answers late delays no look at memory. One that does
        not answer is waited for no longer than a process that was killed."""
        over = threading.Event()
        watching = threading.Thread(
            target=self._watch_disk, args=(members, over), name="job disk", daemon=True
        )
        watching.start()
        try:
            yield
        finally:
            over.set()
            watching.join(KILLED_SECS)

    def _watch_disk(self, members: JobMembers, over: threading.Event) -> None:
        pause = 0.0
        while not over.wait(pause):
            began = time.monotonic()
            try:
                self._look_at_disk(members.find(self._limits.processes))
            except OSError as error:
                self._fail(f"has folders that cannot be looked at: {error}")
            pause = max(DISK_LOOK_SECS, (time.monotonic() - began) / DISK_SHARE)

    def _look_at_disk(self, pids: set[int] | None = None) -> None:
        program, limits = self._program, self._limits
        bounds = (limits.entries, limits.depth)
        sizes = [size_of(one, *bounds) for one in (program.scratch, program.output)]
        unlinked = unlinked_bytes(pids or set())
        scratch = sizes[0].disk_bytes + unlinked.disk
        output = sizes[1].disk_bytes
        with self._lock:
            self._disk_bytes = max(self._disk_bytes, scratch + output)
        for taken, most, what in (
            (scratch, limits.disk_bytes, "disk"),
            (output, limits.output_bytes, "disk for its result"),
            (unlinked.memory, limits.memory_bytes, "memory for files without a name"),
        ):
            if taken > most:
                self._fail(
                    f"took {size_text(taken)} of {what}, more than its limit of {size_text(most)}"
                )
        for size in sizes:
            self._check_tree(size)

    def _check_tree(self, size: TreeSize) -> None:
        limits = self._limits
        if size.depth > limits.depth:
            self._fail(f"made folders more than {limits.depth} deep")
        elif size.entries > limits.entries:
            self._fail(f"made more than {limits.entries} files and folders")
        elif size.unread:
            place = os.path.relpath(size.unread, self._program.output.parent)
            self._fail(f"made a folder that cannot be listed, '{place:.200}'")

    def _fail(self, words: str) -> None:
        self._condemn(Verdict("failed", words), 0.0)

    def _condemn(self, verdict: Verdict, grace_secs: float) -> None:
        """The first verdict holds, but for that nobody wants the result."""
        with self._lock:
            if self._closed:
                return
            if self._verdict is None or verdict.outcome == "abandoned":
                self._verdict = verdict
                self._kill_at = time.monotonic() + grace_secs
                self._is_asked = grace_secs == 0
                os.eventfd_write(self._wake, 1)

    def _enforce(self, leader: int, now: float) -> None:
        """Signal the whole group, once by SIGTERM and, later, by SIGKILL."""
        with self._lock:
            is_due = bool(self._kill_at) and now >= self._kill_at
            asks = self._verdict is not None and not self._is_asked
            self._is_asked = self._is_asked or asks
        if is_due:
            _signal_group(leader, signal.SIGKILL)
        elif asks:
            _signal_group(leader, signal.SIGTERM)

    def _is_overdue(self) -> bool:
        """Whether it was killed long ago."""
        return bool(self._kill_at) and time.monotonic() > self._kill_at + KILLED_SECS

    def _reap(self, process: "subprocess.Popen[bytes]", members: JobMembers) -> int:
        """Its exit status; its whole group has ended with it."""
        _signal_group(process.pid, signal.SIGKILL)
        until = time.monotonic() + KILLED_SECS
        while is_group_alive(process.pid) and time.monotonic() < until:
            time.sleep(_KILLED_LOOK_SECS)
        members.end()  # those that could leave the group
        process.returncode, cpu_secs = self._wait(process.pid, until)
        with self._lock:
            self._ended_cpu_secs = max(cpu_secs, self._usage.cpu_secs)
        return process.returncode

    def _wait(self, pid: int, until: float) -> tuple[int, float]:
        """The exit status of a process that was killed, and its processor time. One that does not
        end in time (its disk does not answer, or a debugger holds it) is left to the kernel."""
        while True:
            ended, status, used = os.wait4(pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
            if time.monotonic() >= until:
                _log.error(
                    "process %d of %s was killed and has not ended within %g s; it is left behind",
                    pid,
                    self._program.title,
                    KILLED_SECS,
                )
                return -signal.SIGKILL, 0.0
            time.sleep(_KILLED_LOOK_SECS)


def _signal_group(leader: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
