"""The page about findings says what the code says."""

import re
from pathlib import Path

from repository.findings import CODES, MOST_SHOWN, Finding, lines

ROOT = Path(__file__).parents[2]


def test_every_code_is_documented_and_every_documented_code_exists():
    page = (ROOT / "docs" / "findings.md").read_text()
    assert set(re.findall(r"^\| (E\d{3}) \| \S.* \| \S.* \|$", page, re.MULTILINE)) == set(CODES)


def test_every_code_is_used_and_every_used_code_is_known():
    sources = [
        path
        for package in ("repository", "control", "server")
        for path in (ROOT / package).rglob("*.py")
    ]
    texts = (path.read_text() for path in sources if path.name != "findings.py")
    used = {code for text in texts for code in re.findall(r'"(E\d{3})"', text)}
    assert used == set(CODES)


def test_where_findings_are_left_out_the_last_line_says_how_many():
    found = [Finding(Path(f"m/{number}"), 0, 0, "E400", "x") for number in range(MOST_SHOWN + 7)]
    shown = lines(found)
    assert (len(shown), shown[-2], shown[-1]) == (51, f"m/{MOST_SHOWN - 1} E400 x", "… and 7 more")
    assert lines(found[:MOST_SHOWN])[-1] == f"m/{MOST_SHOWN - 1} E400 x"
