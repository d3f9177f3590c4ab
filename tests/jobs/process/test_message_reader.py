"""Messages of a job's process as they are decoded."""

import json

import pytest

from control.jobs.messages import Finished
from control.jobs.policy.report_bounds import LISTS
from jobs.process.message_reader import BadMessage, MessageReader


def finished(**report: object) -> bytes:
    body = {"title": "t", "verdict": "accepted", **report}
    return json.dumps({"type": "finished", "report": body}).encode() + b"\n"


def test_a_report_that_is_too_long_is_cut_on_arrival() -> None:
    reader = MessageReader()
    (message,) = reader.feed(finished(reasons=["r"] * 1_000))
    assert isinstance(message, Finished)
    assert message is reader.last
    assert len(message.report.reasons) == LISTS["reasons"]


def test_a_report_that_is_nested_without_end_is_a_bad_message() -> None:
    spec = '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"
    body = '{"type": "finished", "report": {"title": "t", "verdict": "accepted", "spec": ' + spec
    with pytest.raises(BadMessage, match="cannot be read"):
        MessageReader().feed(body.encode() + b"}}\n")
