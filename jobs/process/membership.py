"""Which processes belong to a job, however they were started, and their end; Linux.

Those whose parent has ended are looked for among our main thread's children, whom the kernel gives
them to where we asked (`repository.sandbox.orphans.adopt`). They are told apart by the job's mark,
by the group and session of its first process, and by the scratch folder in their environment.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from backends.process.health.memory_usage import process_tree
from jobs.process.mark import mark_of
from jobs.process.usage import GROUP, SESSION, stat_of
from repository.sandbox.peer import is_of_worker

MOST_ESCAPED = 10_000
_MOST_ROUNDS = 100
_ROUND_SECS = 0.002


class JobMembers(NamedTuple):
    """The processes of one job.

    leader: its first one, which leads a group and a session. scratch: in the environment of all
    that it starts, unless they drop it. strays: it may leave its group, so that confined orphans
    that no other job of this program has a claim to are its own, those that lowered their mark.
    """

    leader: int
    scratch: bytes
    strays: bool

    def find(self, most: int) -> set[int]:
        """`most` of them at most. Costs no more than that many processes do, however fast they
        multiply."""
        return set(islice(self._all(), most))

    def end(self) -> None:
        """Kill and reap those whose parent has ended, with all that they start meanwhile; takes
        0.2 s at most."""
        left: set[int] = set()
        for _ in range(_MOST_ROUNDS):
            left |= set(islice(self._orphans(), MOST_ESCAPED))
            left = {pid for pid in left if _is_left(pid)}
            if not left:
                return
            time.sleep(_ROUND_SECS)

    def _all(self) -> Iterator[int]:
        found = set()
        for pid in chain(process_tree(self.leader), self._orphans()):
            if pid not in found:
                found.add(pid)
                yield pid

    def _orphans(self) -> Iterator[int]:
        """With all that is below them."""
        own = os.getpid()
        with suppress(OSError):
            children = Path(f"/proc/{own}/task/{own}/children").read_text().split()
            for pid in map(int, children):
                if pid != self.leader and self._owns(pid):
                    yield from process_tree(pid)

    def _owns(self, pid: int) -> bool:
        if self._has_sign_of(pid):
            return True
        if not self.strays or not is_of_worker(pid):
            return False
        return not any(one._has_sign_of(pid) for one in tuple(_running) if one != self)

    def _has_sign_of(self, pid: int) -> bool:
        fields = stat_of(pid)
        if not fields:
            return False
        leaders = {int(fields[GROUP]), int(fields[SESSION])}
        if self.leader in leaders:
            return True
        # A process can lower its mark and change its environment, but join no other job's session.
        if any(one.leader in leaders for one in tuple(_running) if one != self):
            return False
        if mark_of(pid) == self.leader:
            return True
        with suppress(OSError):
            return self.scratch in Path(f"/proc/{pid}/environ").read_bytes()
        return False


_running: set[JobMembers] = set()


@contextmanager
def running(members: JobMembers) -> Iterator[None]:
    """While inside, no other job takes these for its own."""
    _running.add(members)
    try:
        yield
    finally:
        _running.discard(members)


def _is_left(pid: int) -> bool:
    """Kill it, and reap it where it is a child of ours that has ended."""
    try:
        os.kill(pid, signal.SIGKILL)
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    except ProcessLookupError:
        return False
    except ChildProcessError:  # its parent is another one, which ends as well
        return True
