"""A worker hears from its broker, whatever lies there."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from control.jobs.views import DueJob
from jobs.worker.broker import broker_of
from jobs.worker.sender import JobSender

ROOT = Path(__file__).parents[3]
WAIT_S = 60.0
LISTEN = """
import sys
from pathlib import Path
from jobs.worker.broker import broker_of
from jobs.worker.loop import listen
from jobs.worker.worker import JobWorker

class ToldWorker(JobWorker):
    def __init__(self):
        pass
    def work(self):
        print("told", flush=True)
    def stop(self):
        pass

listen(broker_of("", Path(sys.argv[1])), ["default"], ToldWorker(), 1, "w")
"""


class Listener:
    """A worker of a folder, which writes a line for each message that it was told."""

    def __init__(self, folder: Path) -> None:
        self.broker = broker_of("", folder / "broker")
        self.messages = folder / "broker" / "messages"
        self._printed = folder / "printed"
        self._sender = JobSender(self.broker)
        self.send()
        with self._printed.open("wb") as printed:
            self.process = subprocess.Popen(
                [sys.executable, "-c", LISTEN, str(folder / "broker")],
                cwd=ROOT,
                stdout=printed,
                stderr=subprocess.STDOUT,
            )

    def send(self) -> None:
        self._sender.send([DueJob("1", "default", 0)])

    def printed(self) -> str:
        return self._printed.read_text(errors="replace")

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert self.process.poll() is None, self.printed()
            assert time.monotonic() < deadline, self.printed()
            time.sleep(0.05)

    def close(self) -> None:
        self._sender.close()
        self.process.terminate()
        self.process.wait(WAIT_S)


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    found = Listener(tmp_path)
    yield found
    found.close()


@pytest.mark.slow
def test_a_message_that_cannot_be_read_is_dropped_and_the_next_one_is_heard(
    listener: Listener,
) -> None:
    listener.until(lambda: listener.printed().count("told") == 1)
    for number, text in enumerate((b"", b"{}", b"\xff", b'{"properties": {}}')):
        (listener.messages / f"{number}_x.modelyard.default.msg").write_bytes(text)
        listener.until(lambda: not list(listener.messages.iterdir()))
    listener.send()
    listener.until(lambda: listener.printed().count("told") == 2)
