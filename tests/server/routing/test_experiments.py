"""Experiments in the gateway: who takes part, what is told of it, and what feedback may be."""

import time
from typing import Any

import pytest

from control.desired import DesiredArm, DesiredExperiment, DesiredRoute, DesiredState
from control.errors import Invalid
from control.experiments.stamp import read, unit_key
from schedulers.reply import Reply
from schedulers.request import InferRequest
from server.errors import InvalidRequest, Unsupported
from server.routing.experiments.exposures import RETELL_S, ExposureBuffer
from server.routing.experiments.feedback import FeedbackBuffer, parse
from server.routing.routing import Routing
from server.routing.table import Target, UnitExposure

KEY = b"k" * 32
ARMS = (DesiredArm("a", "digits", 1, weight=5_000), DesiredArm("b", "digits", 2, weight=5_000))
SHOP = DesiredRoute("shop", ARMS, salt="s", unit="header:x-user")
COLOUR = DesiredExperiment("e1", "shop", ("a", "b"), buckets=10_000)


def routing(*experiments: DesiredExperiment) -> Routing:
    made = Routing(_send)
    made.use(DesiredState(routes=(SHOP,), experiments=experiments, stamp_key=KEY))
    return made


def _send(target: Target, request: InferRequest, until_ns: int) -> Reply:
    raise AssertionError("no copies here")


def test_a_unit_s_answer_has_a_stamp_that_names_its_arm_and_it_is_told_once() -> None:
    made = routing(COLOUR)
    route = made.table["shop"]
    for _ in range(3):
        target = made.pick(route, "ada")
        made.note_assignment(target)
    stamp = read(KEY, target.stamp, time.time())
    assert (stamp.route.arm, stamp.route.subject) == (target.arm, "e1")
    assert stamp.unit == unit_key("ada").hex()
    assert target.line.endswith(f"x-modelyard-stamp: {target.stamp}\r\n".encode())
    (frame,) = made.exposures.messages()
    (seen,) = frame.rows
    assert (seen.experiment, seen.unit, seen.arm) == ("e1", stamp.unit, target.arm)
    assert not list(made.exposures.messages())


def test_who_has_no_unit_and_what_has_no_experiment_gets_no_stamp() -> None:
    made = routing(COLOUR)
    assert not made.pick(made.table["shop"], "").stamp
    assert not routing().pick(made.table["shop"], "ada").stamp


def test_experiments_of_one_namespace_share_no_unit() -> None:
    halves = [
        DesiredExperiment(f"e{number}", "shop", ("a", "b"), "shops", 5_000 * number, 5_000)
        for number in range(2)
    ]
    made = routing(*halves)
    found = [made.pick(made.table["shop"], f"u{n}").exposure for n in range(1_000)]
    taking = [one.experiment for one in found if one is not None]
    assert len(taking) == 1_000
    assert 400 < taking.count("e0") < 600


def test_exposures_are_bounded_and_told_again_after_a_while() -> None:
    made = ExposureBuffer(remembered=2, waiting=3)
    seen = [UnitExposure("e1", f"{number}", "a") for number in range(4)]
    for one in seen:
        made.note(one, 0.0)
    assert made.dropped == 1
    frames = made.messages()
    assert len(next(frames).rows) == 3
    frames.close()  # it could not be sent
    assert [len(frame.rows) for frame in made.messages()] == [3]
    made.note(seen[2], RETELL_S - 1)
    assert not list(made.messages())
    made.note(seen[2], RETELL_S + 1)
    made.note(seen[0], RETELL_S + 1)
    assert [len(frame.rows) for frame in made.messages()] == [2]


def test_feedback_is_taken_whole_or_not_at_all() -> None:
    queue = FeedbackBuffer(waiting=3)
    two = parse({"values": [{"metric": "m", "value": 1, "unit": "u"}] * 2}, "shop", b"", 1.0)
    with pytest.raises(Unsupported, match="--allow-admin"):
        queue.offer(two)
    queue.open()
    assert queue.offer(two)
    assert not queue.offer(two)
    assert [len(frame.rows) for frame in queue.messages()] == [2]
    assert queue.offer(two)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"value": 1, "unit": "u"}, "the metric is missing"),
        ({"metric": "m", "unit": "u"}, "value must be true, false, or a number"),
        ({"metric": "m", "value": float("nan"), "unit": "u"}, "value must be"),
        ({"metric": "m", "value": 10**400, "unit": "u"}, "value must be"),
        ({"metric": "m", "value": 1}, "give either the stamp"),
        ({"metric": "m", "value": 1, "unit": "u", "stamp": "s"}, "give either the stamp"),
        ({"metric": "m", "value": 1, "unit": "\ud800"}, "printable"),
        ({"metric": "m", "value": 1, "unit": "u", "x": 1}, "there is no 'x'"),
        ({"metric": "m", "value": 1, "stamp": "a.b"}, "was not signed by this server"),
        ({"values": []}, "1 to 1000"),
        ({"values": [1]}, "value 1 of 1: it must be an object"),
    ],
)
def test_feedback_that_is_wrong_is_refused_in_words(body: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        parse(body, "shop", KEY, time.time())


def test_a_stamp_of_another_name_is_refused() -> None:
    made = routing(COLOUR)
    stamp = made.pick(made.table["shop"], "ada").stamp
    value = {"metric": "m", "value": True, "stamp": stamp}
    for name in ("shop", "digits"):
        assert parse(value, name, KEY, time.time())[0].stamp == stamp
    with pytest.raises(InvalidRequest, match="the stamp is of 'shop', not of 'other'"):
        parse(value, "other", KEY, time.time())
    with pytest.raises(Invalid, match="was not signed"):
        read(b"other", stamp, time.time())
