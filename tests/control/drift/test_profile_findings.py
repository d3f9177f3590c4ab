"""What is wrong with a pushed profile is told with its file, line and column."""

from pathlib import Path

import pytest

from control.drift.profile import FILE
from control.drift.profile_findings import profile_findings

GOOD = '{"format": 1, "features": [{"name": "x", "edges": [0, 1], "counts": [3]}]}'


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ('{\n "format": 1,\n "features": [}\n}', (3, 15), "invalid character"),
        ('{\n "format": 2,\n "features": []}', (2, 12), "format 2; this build reads 1"),
        ('{"format": 1,\n "features": []}', (2, 14), "0 features; from 1"),
        (
            GOOD[:-2] + ',\n  {"name": "é\\"", "edges": [0], "counts": "x"}]}',
            (2, 43),
            "Expected `array | null`, got `str`",
        ),
        (GOOD[:-2] + ',\n  {"name": "y", "role": "label"}]}', (2, 3), "feature 'y': give one of"),
        ("[]", (1, 1), "Expected `object`, got `array`"),
        ("", (1, 1), "truncated"),
    ],
)
def test_a_mistake_has_its_line_and_column(
    tmp_path: Path, text: str, place: tuple[int, int], words: str
) -> None:
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / FILE).write_text(text)
    (found,) = profile_findings(tmp_path)
    assert words in found.message
    assert (found.path, found.code) == (tmp_path / "2" / FILE, "E302")
    assert (found.line, found.column) == place


def test_profiles_that_can_be_used_and_folders_without_have_no_findings(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / FILE).write_text(GOOD)
    assert profile_findings(tmp_path) == []


def test_a_profile_that_is_no_file_is_told(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    (found,) = profile_findings(tmp_path)
    assert "cannot be read" in found.message
