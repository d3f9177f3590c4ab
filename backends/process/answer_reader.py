"""Who reads a worker's connection for calls: who waits for an answer, or a thread of its own.

A thread that asks and does nothing else meanwhile reads its answer itself, and what comes for
others on the way: handing it over from another thread would cost two switches of threads for each
call. So does an asyncio loop whose tasks wait. The thread of its own reads whenever anybody waits
who does not read, and when nobody asks.
"""

import asyncio
import os
import select
import threading
import time
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from repository.process.channel import Channel, ChannelMessage

ASIDE_SECS = 0.1
"""How long the thread of its own leaves the connection to those that read for themselves, after the
last of them has asked: so long a question of the server may wait."""


class AnswerReader:
    """Reads one channel. At any time one thread at most receives from it."""

    def __init__(
        self,
        channel: Channel,
        heed: Callable[[ChannelMessage], None],
        gone: Callable[[], None],
        broken: Callable[[Exception], None],
        others_wait: Callable[[], bool],
        loops_wait: Callable[[], bool],
    ) -> None:
        """`heed` is called with each message, in order, on whichever thread has read it, and must
        not block; `gone`, once or more, when the server has closed the connection; `broken` when
        what comes cannot be read. `others_wait`: whether anybody waits who does not read;
        `loops_wait`: whether a task of a loop does that `read_on` was called for."""
        self._channel = channel
        self._heed = heed
        self._gone = gone
        self._broken = broken
        self._others_wait = others_wait
        self._loops_wait = loops_wait
        self._receiving = threading.Lock()
        self._turn = threading.Condition()
        self._aside_until = 0.0
        self._polling = False
        self._bell = -1
        self._loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
        self._poll = select.poll()

    def start(self) -> None:
        """Start the thread of its own."""
        self._bell = os.eventfd(0, os.EFD_CLOEXEC)
        for descriptor in (self._bell, self._channel.fileno()):
            self._poll.register(descriptor, select.POLLIN)
        threading.Thread(target=self._run, name="call answers", daemon=True).start()

    def expect(self) -> None:
        """The calling thread will ask, and `read_until` it has its answer."""
        self._aside_until = time.monotonic() + ASIDE_SECS
        if self._polling and not self._others_wait():
            self._polling = False
            os.eventfd_write(self._bell, 1)

    def read_until(self, answers: "SimpleQueue[Any]") -> bool:
        """Receive until something lies in `answers`; False where another thread does so already:
        then `wake` it, once `others_wait`."""
        if self._others_wait() or not self._receiving.acquire(blocking=False):
            return False
        try:
            while answers.empty() or self._channel.has_message:
                self._heed(self._channel.receive())
        except (EOFError, OSError):
            self._gone()
        except Exception as error:  # noqa: BLE001 (nobody may wait for what is never read)
            self._broken(error)
        finally:
            self._receiving.release()
        if self._others_wait():
            self.wake()
        return True

    def read_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Let this loop, which runs on the calling thread, receive from now on whenever it runs;
        False for one that watches no descriptors."""
        if loop in self._loops:
            return True
        try:
            loop.add_reader(self._channel.fileno(), self._receive_on, loop)
        except NotImplementedError:
            return False
        self._loops.add(loop)
        return True

    def _receive_on(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._receiving.acquire(blocking=False):
            if not self._loops_wait():  # nor need this one wake for it
                self._leave(loop)
            return
        try:
            while (message := self._channel.receive_begun()) is not None:
                self._heed(message)
                if not self._channel.has_message:
                    return
        except (EOFError, OSError):
            self._leave(loop)
            self._gone()
        except Exception as error:  # noqa: BLE001 (nobody may wait for what is never read)
            self._broken(error)
        finally:
            self._receiving.release()

    def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self._channel.fileno())
        self._loops.discard(loop)

    def wake(self) -> None:
        """Somebody waits who does not read."""
        with self._turn:
            self._turn.notify()

    # on the thread of its own

    def _run(self) -> None:
        try:
            while True:
                self._wait_for_turn()
                if not self._channel.has_message and not self._message_comes():
                    continue
                with self._receiving:
                    if self._channel.has_message or self._is_readable():
                        self._heed(self._channel.receive())
        except (EOFError, OSError):
            self._gone()
        except Exception as error:  # noqa: BLE001 (nobody may wait for what is never read)
            self._broken(error)
        finally:
            self._polling = False
            os.close(self._bell)

    def _wait_for_turn(self) -> None:
        with self._turn:
            while not self._others_wait():
                left = self._aside_until - time.monotonic()
                if left <= 0:
                    return
                self._turn.wait(left)

    def _message_comes(self) -> bool:
        """Wait for one; False where somebody who reads for themselves is about to ask."""
        self._polling = True
        ready = dict(self._poll.poll())
        self._polling = False
        if self._bell in ready:
            os.eventfd_read(self._bell)
            return False
        return True

    def _is_readable(self) -> bool:
        """Another thread may have received it in the meantime."""
        return any(descriptor != self._bell for descriptor, _ in self._poll.poll(0))
