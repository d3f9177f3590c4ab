"""The page about findings says what the code says."""

import re
from pathlib import Path

from repository.findings import CODES

ROOT = Path(__file__).parents[2]


def test_every_code_is_documented_and_every_documented_code_exists():
    page = (ROOT / "docs" / "findings.md").read_text()
    assert set(re.findall(r"^\| (E\d{3}) \| \S.* \| \S.* \|$", page, re.MULTILINE)) == set(CODES)


def test_every_code_is_used_and_every_used_code_is_known():
    sources = [
        path for package in ("repository", "server") for path in (ROOT / package).glob("*.py")
    ]
    texts = (path.read_text() for path in sources if path.name != "findings.py")
    used = {code for text in texts for code in re.findall(r'"(E\d{3})"', text)}
    assert used == set(CODES)
