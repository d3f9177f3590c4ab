"""Write the tables of settings in README.md and docs/settings.md from `server.settings.table`.

Run by `./dev fix`; tests/docs fails while a table is out of date.
"""

from pathlib import Path

from docs import write_commands, write_config, write_formats, write_triton_flags
from server.settings.row import Setting
from server.settings.table import SECTIONS, TABLE

ROOT = Path(__file__).resolve().parent.parent
_START = "<!-- settings: written by ./dev fix -->\n"
_END = "<!-- end of settings -->\n"


def main() -> None:
    """Bring both files, docs/triton-flags.md, docs/cli.md, docs/formats.md and
    docs/config.md up to date."""
    for path in (ROOT / "README.md", ROOT / "docs" / "settings.md"):
        path.write_text(up_to_date(path))
    write_triton_flags.main()
    write_commands.main()
    write_formats.main()
    write_config.main()


def up_to_date(path: Path) -> str:
    """The file's text with its table of settings as it should be."""
    before, start, rest = path.read_text().partition(_START)
    _, end, after = rest.partition(_END)
    if not (start and end):
        raise ValueError(f"{path} has lost its lines {_START!r} and {_END!r}")
    table = short_table() if path.name == "README.md" else full_tables()
    return before + start + "\n" + table + "\n" + end + after


def short_table() -> str:
    """One table: flag, default, meaning."""
    lines = ["| flag | default | meaning |", "|---|---|---|"]
    lines += [f"| `{row.flag}` | {_code(row.default_text)} | {_cell(row.text)} |" for row in TABLE]
    return "\n".join(lines) + "\n"


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
