"""The help text of `modelyard serve`: grouped, with defaults and examples, at any width."""

import shutil
import textwrap
from collections.abc import Iterator

from server.settings.row import Setting
from server.settings.table import SECTIONS, TABLE

_COLUMN = 34
_NARROW = 72
_WIDEST = 100
_INTRODUCTION = (
    "Serve the models of one or more folders over REST and gRPC (Triton's KServe v2 protocol). "
    "Every setting may also stand in a TOML file (http_port = 8000) or in the environment "
    "(MODELYARD_HTTP_PORT=8000); a flag beats the environment, which beats the file. "
    "BOOL is true or false; such a flag alone means true."
)
_DEMO = (
    "Write the digits example into a folder and serve it: a network that reads handwritten digits, "
    "in two versions that come trained with Modelyard. What is there already stays. The state is "
    "kept in the same folder. Takes the flags of `modelyard serve` as well."
)
_WORKER = (
    "Run offline jobs (convert, quantise, prune and their like) until SIGTERM. Give it the "
    "--database, the --store-dir and the --job-broker of the servers whose jobs it is to run, and, "
    "on another machine, a --state-dir of its own. Takes the flags of `modelyard serve` as well; "
    "docs/jobs.md tells which of them matter."
)
_EXAMPLES = (
    ("serve ./models and follow what changes in it", "modelyard serve"),
    (
        "a second server beside the first",
        "modelyard serve --http-port 9000 --grpc-port 9001 --metrics-port 9002 "
        "--admin-port 9003 --state-dir .second",
    ),
    (
        "load only what is asked for",
        "modelyard serve --model-control-mode explicit --load-model digits",
    ),
    ("settings from a file", "modelyard serve --config production.toml"),
)


def serve_help(width: int | None = None) -> str:
    """The help text, wrapped to `width` columns (the terminal's when None)."""
    columns = width or shutil.get_terminal_size((80, 24)).columns
    columns = max(30, min(columns, _WIDEST))
    lines = ["usage: modelyard serve [--flag value]", ""]
    lines += textwrap.wrap(_INTRODUCTION, columns)
    for section in SECTIONS:
        lines += ["", section]
        for row in TABLE:
            if row.section == section:
                lines += _entry(f"{row.flag} {row.kind.placeholder}", _text(row), columns)
    lines += ["", "Other"]
    lines += _entry(
        "--config FILE", "TOML file to read. [modelyard.toml, if there is one]", columns
    )
    lines += _entry("--help", "Show this text.", columns)
    lines += ["", "Examples", *_examples(columns)]
    return "\n".join(lines) + "\n"


def demo_help(width: int | None = None) -> str:
    """The help text of `modelyard demo`."""
    columns = max(30, min(width or shutil.get_terminal_size((80, 24)).columns, _WIDEST))
    lines = ["usage: modelyard demo [--into DIR] [--flag value]", ""]
    lines += textwrap.wrap(_DEMO, columns)
    lines += ["", *_entry("--into DIR", "Folder to write into. [modelyard-demo]", columns)]
    lines += _entry("--help", "Show this text.", columns)
    return "\n".join(lines) + "\n"


def worker_help(width: int | None = None) -> str:
    """The help text of `modelyard worker`."""
    columns = max(30, min(width or shutil.get_terminal_size((80, 24)).columns, _WIDEST))
    lines = ["usage: modelyard worker [--queues NAME,NAME] [--flag value]", ""]
    lines += textwrap.wrap(_WORKER, columns)
    text = "Queues whose jobs it runs. [those of --job-queue]"
    lines += ["", *_entry("--queues NAME,NAME", text, columns)]
    lines += _entry("--help", "Show this text.", columns)
    return "\n".join(lines) + "\n"


def _text(row: Setting) -> str:
    return f"{row.text} [{row.default_text}]"


def _entry(flag: str, text: str, columns: int) -> Iterator[str]:
    indent = 6 if columns < _NARROW else _COLUMN
    wrapped = textwrap.wrap(text, columns - indent, break_on_hyphens=False)
    head = f"  {flag}"
    if len(head) + 2 <= indent:
        yield head.ljust(indent) + wrapped.pop(0)
    else:
        yield head
    for line in wrapped:
        yield " " * indent + line


def _examples(columns: int) -> Iterator[str]:
    for meaning, command in _EXAMPLES:
        yield from textwrap.wrap(f"# {meaning}", columns, initial_indent="  ")
        yield from _command(command, columns)


def _command(command: str, columns: int) -> Iterator[str]:
    """The command on lines a shell would join, broken only before a flag."""
    first, *flags = command.split(" --")
    line = "  " + first
    for flag in flags:
        if len(line) + len(flag) + 5 > columns:
            yield line + " \\"
            line = "     "
        line += " --" + flag
    yield line
