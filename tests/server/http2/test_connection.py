"""Frames out of bytes, however they arrive; and budgets that refill."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.http2.connection import MAX_FRAME_BYTES, Splitter
from server.http2.token_bucket import TokenBucket
from server.http2.wire.frames import PREFACE, ConnectionFault, ErrorCode, frame

FRAMES = st.tuples(
    st.integers(0, 255), st.integers(0, 255), st.integers(0, 2**31 - 1), st.binary(max_size=40)
)


@given(st.lists(FRAMES, max_size=6), st.lists(st.integers(1, 50), min_size=1))
def test_frames_are_the_same_however_the_bytes_are_cut(sent, cuts):
    written = PREFACE + b"".join(frame(*one) for one in sent)
    splitter, found, position, turn = Splitter(), [], 0, 0
    while position < len(written):
        end = position + cuts[turn % len(cuts)]
        found += splitter.feed(written[position:end])
        position, turn = end, turn + 1
    assert found == sent


def test_the_reserved_bit_of_a_stream_is_ignored():
    written = frame(1, 0, 5)
    high = written[:5] + bytes((written[5] | 0x80,)) + written[6:]
    assert list(Splitter().feed(PREFACE + high)) == [(1, 0, 5, b"")]


def test_a_frame_too_large_is_refused_by_its_head():
    head = frame(0, 0, 1, b"x" * (MAX_FRAME_BYTES + 1))[:9]
    with pytest.raises(ConnectionFault) as refused:
        list(Splitter().feed(PREFACE + head))
    assert refused.value.code == ErrorCode.FRAME_SIZE_ERROR


def test_a_budget_is_spent_and_refills_up_to_its_burst():
    calm = TokenBucket(3, 2.0, 100.0)
    assert [calm.spend(100.0) for _ in range(4)] == [True, True, True, False]
    assert calm.spend(101.0)
    assert not calm.spend(101.0)
    assert calm.spend(1000.0, 3)
    assert not calm.spend(1000.0)
