"""Messages of servers survive being cut into payloads; what is none is refused."""

import base64
import random

import msgspec
import pytest

from control.gateways.peer_messages import (
    KEEP_S,
    MOST_INCOMPLETE,
    MessageAssembler,
    PeerAnswer,
    PeerMessage,
    PeerQuery,
    payloads_of,
)
from control.gateways.queries import AnsweredRequest, AnsweredRequests, RequestsQuery

QUERY = PeerQuery("7", "b00t", RequestsQuery(id="3f9ac1d20b77-1c", limit=500))
POSTGRES_BYTES = 7999


def longest_answer() -> PeerAnswer:
    """Of 500 requests whose texts are as long as a gateway keeps them, and do not compress."""
    drawn = random.Random(1)

    def text(length: int) -> str:
        return "".join(chr(drawn.randrange(33, 127)) for _ in range(length))

    rows = (
        AnsweredRequest(text(18), text(128), 1.7e9, "m", 1, text(255), 0, 0.1, 0.2, "ok", text(200))
        for _ in range(500)
    )
    return PeerAnswer("7", "server2", AnsweredRequests(tuple(rows), 90_000, 100_000))


@pytest.mark.parametrize("message", [QUERY, longest_answer()], ids=["query", "longest answer"])
def test_a_message_is_whole_again_whatever_the_order_of_its_pieces(message: PeerMessage) -> None:
    payloads = payloads_of(message, "one")
    assert all(len(payload.encode()) <= POSTGRES_BYTES for payload in payloads)
    random.Random(2).shuffle(payloads)
    assembler = MessageAssembler()
    *before, last = [assembler.add(payload, 0.0) for payload in payloads]
    assert before == [None] * len(before)
    assert last == message


def test_pieces_of_two_messages_do_not_mix() -> None:
    first, second = longest_answer(), PeerAnswer("8", "server3", longest_answer().answer)
    assembler = MessageAssembler()
    mixed = zip(payloads_of(first, "one"), payloads_of(second, "two"), strict=True)
    found = [assembler.add(payload, 0.0) for both in mixed for payload in both]
    assert [one for one in found if one is not None] == [first, second]


def test_what_stays_incomplete_is_forgotten() -> None:
    assembler = MessageAssembler()
    start, *rest = payloads_of(longest_answer(), "one")
    assembler.add(start, 0.0)
    assert all(assembler.add(payload, KEEP_S + 1) is None for payload in rest)


def test_incomplete_messages_are_bounded() -> None:
    assembler = MessageAssembler()
    for number in range(MOST_INCOMPLETE):
        assembler.add(payloads_of(longest_answer(), str(number))[0], 0.0)
    with pytest.raises(ValueError, match="too many messages"):
        assembler.add(payloads_of(longest_answer(), "more")[0], 0.0)


def piece(*fields: object) -> str:
    return base64.b64encode(msgspec.msgpack.encode(fields)).decode()


@pytest.mark.parametrize(
    "payload",
    [
        "no base64!",
        base64.b64encode(b"\xff").decode(),
        piece("m", 0, 0, b""),
        piece("m", -1, 2, b""),
        piece("m", 0, 100_000, b""),
        piece("m", 0, 1, b"not compressed"),
        piece("m", 0, 1, b""),
        piece("m", 0, 1),
    ],
)
def test_what_is_no_message_is_refused(payload: str) -> None:
    with pytest.raises(ValueError):
        MessageAssembler().add(payload, 0.0)
