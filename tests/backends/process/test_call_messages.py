"""What workers and their server say of calls: everything said is understood, nothing else is."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.process import call_messages as messages
from backends.process.call_messages import (
    CallCancel,
    CallRead,
    CallRequest,
    ControlRequest,
    FamilyRequest,
    MetricValues,
    SeriesValue,
    decode_from_worker,
)
from backends.process.layout import TensorBlock
from backends.process.messages import encode

NUMBERS = st.integers(0, (1 << 63) - 1)
BLOCKS = st.lists(
    st.builds(
        TensorBlock,
        st.text(max_size=9),
        st.sampled_from(["FP32", "BYTES"]),
        NUMBERS,
        st.tuples(st.lists(st.integers(0, 9), max_size=4).map(tuple)),
    ),
    max_size=3,
).map(tuple)
SERIES = st.builds(
    SeriesValue,
    st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=3).map(tuple),
    st.floats(allow_nan=False),
    NUMBERS,
    st.lists(st.floats(allow_nan=False), max_size=3).map(tuple),
    st.lists(NUMBERS, max_size=3).map(tuple),
)
SAID = st.one_of(
    st.builds(CallRead, NUMBERS, NUMBERS),
    st.builds(CallCancel, NUMBERS),
    st.builds(FamilyRequest, NUMBERS, st.text(), st.text(), st.text()),
    st.builds(MetricValues, st.dictionaries(st.text(max_size=9), st.tuples(SERIES), max_size=3)),
    st.builds(
        ControlRequest,
        NUMBERS,
        st.sampled_from([messages.LOAD, messages.UNLOAD, messages.IS_READY]),
        st.text(),
        st.text(),
        st.text(),
        st.booleans(),
        BLOCKS,
        st.binary(),
    ),
    st.builds(
        CallRequest,
        number=NUMBERS,
        model=st.text(),
        version=st.integers(-1, 1 << 40),
        id=st.text(),
        correlation_id=NUMBERS | st.text(),
        flags=st.integers(0, 3),
        timeout_us=NUMBERS,
        parameters=st.text(),
        requested_outputs=st.lists(st.text(), max_size=3).map(tuple),
        stream=st.booleans(),
        causes=st.lists(NUMBERS, max_size=3).map(tuple),
        blocks=BLOCKS,
        data=st.binary(),
    ),
)


@given(said=SAID)
def test_whatever_a_worker_says_is_understood(said: Any) -> None:
    assert decode_from_worker(encode(said)) == said


@given(payload=st.binary() | SAID.map(encode).map(lambda wire: wire[: len(wire) // 2]))
def test_whatever_it_does_not_say_is_refused_and_not_believed(payload: bytes) -> None:
    with suppress(ValueError):
        assert encode(decode_from_worker(payload))


def test_message_of_very_many_parts_is_refused_before_it_becomes_objects() -> None:
    many = encode(CallRequest(1, "m", -1, "", 0, 0, 0, "", ("",) * 300_000, False, (), (), b""))
    with pytest.raises(ValueError, match="exceeds"):
        decode_from_worker(many)
