"""The same network answers alike on every runtime, as versions of one name."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples.one_network.formats import WRITERS

ROOT = Path(__file__).parents[2]
LARGEST_DIFFERENCE = 1e-5
"""Of scores up to 0.11; float32 sums in another order differ by some 1e-7."""


@pytest.mark.slow
def test_one_command_prints_a_table_of_every_runtime_and_they_agree() -> None:
    command = [sys.executable, "-m", "examples.one_network", "--seconds", "0.3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| (\S+) \|.* (\d+) MiB", done.stdout, re.MULTILINE)
    assert [(int(number), backend) for number, backend, _, _ in rows] == list(enumerate(WRITERS, 1))
    assert all(float(difference) < LARGEST_DIFFERENCE for _, _, difference, _ in rows)
    assert all(int(granted) > 0 for *_, granted in rows)
