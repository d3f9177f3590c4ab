"""Memory of single blocks goes back to the system, and comes again when it is written."""

import sys
from pathlib import Path

import pytest
import torch

from backends.llm.pages import discard

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's madvise")
MIB = 1 << 20


def anonymous_bytes() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))


def test_discarded_blocks_take_no_memory_and_read_as_zeros() -> None:
    tensor = torch.ones(64, MIB // 4)
    before = anonymous_bytes()
    given = discard([tensor], range(16, 64))
    assert 47 * MIB <= given <= 48 * MIB
    assert before - anonymous_bytes() > 40 * MIB
    assert tensor[:16].all()
    assert not tensor[17:63].any()


def test_neighbours_of_discarded_blocks_keep_every_number() -> None:
    tensor = torch.ones(256, 100)
    discard([tensor], [block for block in range(256) if block % 5])
    assert tensor[::5].all()


def test_discarded_blocks_can_be_written_again() -> None:
    tensor = torch.ones(8, MIB // 4)
    discard([tensor], [3, 4])
    tensor[3] = 7
    assert (tensor[3] == 7).all()


def test_blocks_smaller_than_a_page_go_back_together_with_their_neighbours() -> None:
    tensor = torch.ones(4096, 64)
    assert discard([tensor], [5]) == 0
    assert discard([tensor], range(4096)) >= tensor.nbytes - 2 * 4096
