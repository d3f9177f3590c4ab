"""Mutations of whole records beside those of bytes, for protocols with lengths and frames."""

import random
from collections.abc import Callable

from benchmarks.fuzz.target import Target

Bytes = Callable[[bytes, int], bytes]
"""libFuzzer's own mutation: the input and its longest length to a new input."""


def mutator(target: Target, of_bytes: Bytes) -> Callable[[bytes, int, int], bytes]:
    """What libFuzzer calls for a new input: (input, longest length, seed) to the new input."""
    split = target.split
    assert split is not None

    def mutate(data: bytes, longest: int, seed: int) -> bytes:
        dice = random.Random(seed)
        if dice.random() < 0.2:
            return of_bytes(data, longest)
        try:
            records = split(data)
        except ValueError:
            return of_bytes(data, longest)
        for _ in range(dice.choice((1, 1, 1, 2, 3))):
            records = _one(records, dice, of_bytes, longest)
        return target.join(records)[:longest]

    return mutate


def _one(records: list[bytes], dice: random.Random, of_bytes: Bytes, longest: int) -> list[bytes]:
    """One record is changed within, doubled, dropped, or moved."""
    if not records:
        return [of_bytes(b"", longest)]
    at = dice.randrange(len(records))
    match dice.randrange(6):
        case 0 if len(records) > 1:
            return records[:at] + records[at + 1 :]
        case 1:
            return [*records[: at + 1], records[at], *records[at + 1 :]]
        case 2:
            to = dice.randrange(len(records))
            rest = records[:at] + records[at + 1 :]
            return [*rest[:to], records[at], *rest[to:]]
        case _:
            room = max(longest - sum(map(len, records)) + len(records[at]), 16)
            return [*records[:at], of_bytes(records[at], room), *records[at + 1 :]]
