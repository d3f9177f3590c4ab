"""What a CPU's flags say about int8."""

import pytest

from jobs.tools.measure.machine import cpu_name, int8_instructions, saturates


@pytest.mark.parametrize(
    ("flags", "overflow", "words"),
    [
        ({"avx2"}, True, "avx2, no VNNI"),
        ({"avx2", "avx512bw"}, True, "avx512bw, no VNNI"),
        ({"avx2", "avx_vnni"}, False, "avx_vnni"),
        ({"avx512_vnni", "avx512bw"}, False, "avx512_vnni"),
        ({"asimd", "asimddp"}, False, "asimddp"),
        (set(), True, "no VNNI"),
    ],
)
def test_int8_sums_overflow_without_vnni(flags: set[str], overflow: bool, words: str) -> None:
    assert saturates(frozenset(flags)) is overflow
    assert int8_instructions(frozenset(flags)) == words


def test_this_cpu_has_a_name() -> None:
    assert len(cpu_name()) > len("()")
