"""Write docs/formats.md, the table of model files and what serves them, from `repository.formats`.

Run by `./dev fix`; tests/docs fails while the page is out of date.
"""

from pathlib import Path

from repository.formats import FORMATS, Format

PAGE = Path(__file__).resolve().parent / "formats.md"
_INTRODUCTION = """# Formats

<!-- written by ./dev fix from repository/formats.py -->

A model's file lies in a version folder under the name in the second column, or under another one
that `default_model_filename` in its config.pbtxt says. `modelyard init MODEL --from FILE` makes the
folder. An extra is installed with the package:
`pip install './modelyard-VERSION-py3-none-any.whl[cpu]'`.

| ending | what it is | in the version folder as | backend | package | extra |
|---|---|---|---|---|---|
"""
_MIDDLE = """
## Not supported yet

The version fails with a reason that says what the file is and what to do; `modelyard check` says
the same. A backend of your own is [one file and one line](backends.md).

| ending | what it is | package | what to do |
|---|---|---|---|
"""


def main() -> None:
    """Bring the page up to date."""
    PAGE.write_text(page())


def page() -> str:
    """The page as it should be."""
    served = [_served(one) for one in FORMATS if one.backend]
    checkpoint = "| a folder | a Hugging Face checkpoint | its files | `llm` | `torch` | `llm` |\n"
    unserved = [_unserved(one) for one in FORMATS if not one.backend]
    return _INTRODUCTION + "".join(served) + checkpoint + _MIDDLE + "".join(unserved)


def _served(one: Format) -> str:
    package = f"`{one.package}`" if one.package else "none"
    extra = f"`{one.extra}`" if one.extra else "none"
    cells = (f"`{one.suffix}`", one.what, f"`{one.file}`", f"`{one.backend}`", package, extra)
    return f"| {' | '.join(cells)} |\n"


def _unserved(one: Format) -> str:
    package = f"`{one.package}`" if one.package else "-"
    remedy = one.remedy.replace("{file}", f"FILE{one.suffix}")
    return f"| `{one.suffix}` | {one.what} | {package} | {remedy} |\n"


if __name__ == "__main__":
    main()
