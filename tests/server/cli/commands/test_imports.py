"""How `modelyard import` tells of progress."""

from dataclasses import replace
from typing import Any

import pytest

from control.clock import utc_now
from control.import_states import ImportState
from control.views import ImportView
from repository.sources.progress import Progress
from server.cli.commands.imports import amount, line


def view(state: ImportState = ImportState.FETCHING, **seen: Any) -> ImportView:
    return ImportView(
        id="i1",
        url="https://example.com/m.onnx",
        model="m",
        version=None,
        expected_digest="",
        state=state,
        progress=replace(Progress(0, None, 0, 1, "", 0.0), **seen),
        digest="",
        versions={},
        reason="",
        by="user:ada",
        created_at=utc_now(),
        finished_at=None,
    )


def test_a_line_tells_bytes_share_and_rate() -> None:
    told = line(
        view(bytes_done=1_500_000, bytes_total=6_000_000, bytes_per_s=2e6, files_total=3), True
    )
    assert told == "fetching: 1.5 MB of 6.0 MB (25 %), 2.0 MB/s, file 1 of 3"


def test_a_line_without_a_known_size_tells_what_is_known() -> None:
    assert line(view(bytes_done=10), True) == "fetching: 10 B, 0 B/s, file 1 of 1"


def test_another_state_is_told_by_its_name() -> None:
    assert line(view(ImportState.CHECKING), True) == "checking"


@pytest.mark.parametrize(
    ("size", "text"), [(999, "999 B"), (1000, "1.0 kB"), (2.5e9, "2.5 GB"), (1e16, "10000.0 TB")]
)
def test_amounts_are_for_people(size: float, text: str) -> None:
    assert amount(size) == text
