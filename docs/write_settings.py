"""Write the tables of docs/settings.md from `server.settings.table`, and the other generated pages.

Run by `./dev fix`; tests/docs fails while a table is out of date.
"""

from pathlib import Path

from docs import write_commands, write_config, write_dashboard, write_formats, write_triton_flags
from server.settings.row import Setting
from server.settings.table import SECTIONS, TABLE

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "settings.md"
_START = "<!-- settings: written by ./dev fix -->\n"
_END = "<!-- end of settings -->\n"


def main() -> None:
    """Bring every generated page up to date."""
    PAGE.write_text(up_to_date())
    write_triton_flags.main()
    write_commands.main()
    write_dashboard.main()
    write_formats.main()
    write_config.main()


def up_to_date() -> str:
    """The page's text with its tables as they should be."""
    before, start, rest = PAGE.read_text().partition(_START)
    _, end, after = rest.partition(_END)
    if not (start and end):
        raise ValueError(f"{PAGE} has lost its lines {_START!r} and {_END!r}")
    return before + start + "\n" + full_tables() + "\n" + end + after


def full_tables() -> str:
    """A table per section, with every spelling of a setting and the values it takes."""
    return "\n".join(_section(section) for section in SECTIONS)


def _section(section: str) -> str:
    head = "| flag · TOML · environment | default | allowed | meaning |\n|---|---|---|---|\n"
    rows = "".join(_full_row(row) for row in TABLE if row.section == section)
    return f"### {section}\n\n{head}{rows}"


def _full_row(row: Setting) -> str:
    spellings = f"`{row.flag}`<br>`{row.name}`<br>`{row.variable}`"
    allowed = row.kind.allowed + (", repeatable" if row.repeat else "")
    return f"| {spellings} | {_code(row.default_text)} | {_cell(allowed)} | {_cell(row.text)} |\n"


def _code(text: str) -> str:
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    main()
