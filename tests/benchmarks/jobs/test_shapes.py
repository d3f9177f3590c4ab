"""Networks of four shapes through the tools, as `python -m benchmarks jobs` sends them."""

from pathlib import Path

import pytest

from benchmarks.jobs import command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("name", ["resnet", "mobilenet", "bert", "boosting"])
def test_network_converts_and_quantises_within_its_bounds(name: str, tmp_path: Path) -> None:
    """Times are CPU times, so that other work is no matter."""
    words = ["--only", name, "--cache", str(tmp_path), "--markdown", str(tmp_path / "table.md")]
    assert command.main(words) == 0
    assert "accepted" in (tmp_path / "table.md").read_text()
