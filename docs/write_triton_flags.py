"""Write the table of docs/triton-flags.md from `server.settings.triton_flags`.

Run by `./dev fix`, through `docs.write_settings`; tests/server/test_tritonserver.py fails while
the table is out of date.
"""

from pathlib import Path

from server.settings.triton_flags import (
    DEFAULTS,
    GROUPS,
    IGNORED,
    OURS,
    TRANSLATED,
    FlagSupport,
    fate,
)

PAGE = Path(__file__).resolve().parent / "triton-flags.md"
_START = "<!-- flags: written by ./dev fix -->\n"
_END = "<!-- end of flags -->\n"


def main() -> None:
    """Bring the page up to date."""
    PAGE.write_text(up_to_date())


def up_to_date() -> str:
    """The page's text with its tables as they should be."""
    before, start, rest = PAGE.read_text().partition(_START)
    _, end, after = rest.partition(_END)
    if not (start and end):
        raise ValueError(f"{PAGE} has lost its lines {_START!r} and {_END!r}")
    return before + start + "\n" + tables() + "\n" + end + after


def tables() -> str:
    """A table per group of Triton's help."""
    return "\n".join(
        f"### {group}\n\n| flag | here | |\n|---|---|---|\n" + "".join(map(_row, flags))
        for group, flags in GROUPS.items()
    )


def _row(flag: str) -> str:
    found = fate(flag)
    return f"| `--{flag}` | {found} | {_words(flag, found).replace('|', chr(92) + '|')} |\n"


def _words(flag: str, found: FlagSupport) -> str:
    if found is FlagSupport.TRANSLATED:
        return TRANSLATED[flag][0]
    if found is FlagSupport.SETTING:
        row = OURS[flag]
        default = DEFAULTS.get(row.name)
        return row.text + (f" Under `tritonserver` the default is `{default}`." if default else "")
    return IGNORED[flag]


if __name__ == "__main__":
    main()
