"""git's answer to a push passes by, and ours is put before its last word."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest

from repository.git.report import ReceiveReport, packet, refusal, reported

WORDS = packet(b"\x02fatal: pack exceeds maximum allowed size\n")
KEEPALIVE = packet(b"\x01")
RESULTS = packet(b"unpack index-pack abnormal exit\n") + packet(b"ng refs/heads/m unpacker error\n")


def passed(
    answer: bytes, lines: Sequence[str] = (), piece_bytes: int = 1 << 16
) -> tuple[bytes, list[ReceiveReport]]:
    heard: list[ReceiveReport] = []

    async def pieces() -> AsyncGenerator[bytes]:
        for start in range(0, len(answer), piece_bytes):
            yield answer[start : start + piece_bytes]

    async def told(report: ReceiveReport) -> Sequence[str]:
        heard.append(report)
        return lines

    async def main() -> bytes:
        return b"".join([piece async for piece in reported(pieces(), told)])

    return asyncio.run(main()), heard


@pytest.mark.parametrize("piece_bytes", [1, 5, 1 << 16])
def test_lines_of_ours_come_before_the_results(piece_bytes: int) -> None:
    results = packet(b"\x01" + RESULTS + b"0000")
    late = packet(b"\x02after the fact\n")
    found, heard = passed(
        WORDS + KEEPALIVE + results + late + b"0000", ["E413 too large"], piece_bytes
    )
    ours = packet(b"\x02E413 too large\n")
    assert found == WORDS + KEEPALIVE + ours + results + late + b"0000"
    assert heard == [
        ReceiveReport(
            "index-pack abnormal exit",
            {"refs/heads/m": "unpacker error"},
            ("fatal: pack exceeds maximum allowed size",),
        )
    ]


def test_results_in_several_packets_are_one_report() -> None:
    whole = RESULTS + b"0000"
    cut = [whole[:9], whole[9:40], whole[40:]]
    answer = b"".join(packet(b"\x01" + piece) for piece in cut) + b"0000"
    found, heard = passed(answer, ["ours"])
    assert found == packet(b"\x02ours\n") + answer
    assert heard[0].refused == {"refs/heads/m": "unpacker error"}


def test_without_a_side_band_the_answer_is_heard_and_left_as_it_is() -> None:
    found, heard = passed(RESULTS + b"0000", ["ours"])
    assert found == RESULTS + b"0000"
    assert heard[0].unpacked == "index-pack abnormal exit"


@pytest.mark.parametrize("answer", [b"", WORDS, WORDS + b"0000", packet(b"\x01half"), b"what?"])
def test_an_answer_without_results_passes_whole_and_is_not_heard_of(answer: bytes) -> None:
    assert passed(answer, ["ours"]) == (answer, [])


def test_a_refusal_in_gits_place_is_an_answer_like_gits() -> None:
    refs = [f"refs/tags/t{number}" for number in range(3000)]
    answer = refusal(["E423 too many"], "too many refs", refs, banded=True)
    assert answer.endswith(b"0000")
    found, heard = passed(answer)
    assert found == answer
    assert heard[0].unpacked == "too many refs"
    assert heard[0].refused == dict.fromkeys(refs, "too many refs")
    assert heard[0].words == ("E423 too many",)
