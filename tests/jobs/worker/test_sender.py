"""Messages for workers: what one queue cannot take, and how many wait."""

from pathlib import Path

import pytest

from control.jobs.views import DueJob
from jobs.worker.broker import broker_of
from jobs.worker.sender import MOST_WAITING, JobSender


def sent(folder: Path, queue: str) -> int:
    return len(list((folder / "messages").glob(f"*.modelyard.{queue}.msg")))


def test_a_queue_that_the_broker_cannot_take_does_not_hold_up_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sender = JobSender(broker_of("", tmp_path))
    jobs = [DueJob("1", "a/b", 100), DueJob("2", "default", 0), DueJob("3", "gpu", 0)]
    for _ in range(2):
        sender.send(jobs)
    sender.close()
    assert (sent(tmp_path, "default"), sent(tmp_path, "gpu")) == (2, 2)
    (line,) = [one.message for one in caplog.records if one.levelname == "ERROR"]
    assert "queue 'a/b'" in line


def test_messages_that_nobody_reads_do_not_pile_up(tmp_path: Path) -> None:
    sender = JobSender(broker_of("", tmp_path))
    for _ in range(3):
        sender.send([DueJob(str(number), "default", 0) for number in range(MOST_WAITING)])
    sender.send([DueJob("x", "gpu", 0)])
    sender.close()
    assert (sent(tmp_path, "default"), sent(tmp_path, "gpu")) == (MOST_WAITING, 1)
