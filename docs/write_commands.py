"""Write docs/cli.md, every command that asks a running server, from `server.cli.commands.table`.

Run by `./dev fix`; tests/docs fails while the page is out of date.
"""

from collections.abc import Iterator
from pathlib import Path

from server.cli.commands.command import Argument, CliCommand
from server.cli.commands.table import COMMANDS, COMMON, GROUPS

PAGE = Path(__file__).resolve().parent / "cli.md"
_INTRODUCTION = """# The command line

<!-- written by ./dev fix from server/commands -->

`modelyard serve` is described in [settings.md](settings.md), `modelyard check` in
[findings.md](findings.md). `modelyard init` works on files alone; the other commands below ask a
running server. Without `--url` they talk to
the one whose state folder is found here (`--state-dir`, `MODELYARD_STATE_DIR`, `modelyard.toml`),
over its Unix socket, where the user the server runs as is an administrator. With `--url` they need
a token, which is never a flag's value: put it into the variable `MODELYARD_TOKEN` or a file.

Times are shown in the time zone of here. On a terminal lists cut what is longer than 60 characters;
into a pipe or a file they are whole. Exit status: 0 done, 1 refused or failed (one line on stderr
says why), 2 a command line that cannot be followed.

`modelyard completion bash|zsh|fish` prints a script that completes commands and flags:
`source <(modelyard completion bash)`, likewise for zsh; `modelyard completion fish | source`. On a
terminal states and errors are coloured, unless the variable `NO_COLOR` is set.

The same can be done over HTTP: the control API describes itself at `/api/v1/openapi.json`.

## For every command

"""


def main() -> None:
    """Bring the page up to date."""
    PAGE.write_text(page())


def page() -> str:
    """The page as it should be."""
    return _INTRODUCTION + _table(COMMON) + "".join(_sections())


def _sections() -> Iterator[str]:
    seen = ""
    for command in COMMANDS:
        group, _, word = command.words.partition(" ")
        if group != seen:
            about = f": {GROUPS[group]}" if group in GROUPS else ""
            yield f"\n## `modelyard {group}`{about}\n"
        seen = group
        yield _command(command, bool(word))


def _command(command: CliCommand, titled: bool) -> str:
    usage = " ".join(["modelyard", command.words, *map(_usage, command.arguments)])
    text = command.meaning[0].upper() + command.meaning[1:] + "."
    table = "\n" + _table(command.arguments) if command.arguments else ""
    head = f"\n### `{command.words}`\n" if titled else ""
    return f"{head}\n{text}\n\n```\n{usage}\n```\n{table}"


def _usage(one: Argument) -> str:
    if not one.is_flag:
        return f"[{one.name}]" if one.options.get("nargs") == "?" else one.name
    value = "" if one.options.get("action") == "store_true" else f" {_placeholder(one)}"
    flag = one.name + value
    return flag if one.options.get("required") else f"[{flag}]"


def _placeholder(one: Argument) -> str:
    choices = one.options.get("choices")
    return "|".join(choices) if choices else one.name.strip("-").replace("-", "_").upper()


def _table(arguments: tuple[Argument, ...]) -> str:
    rows = "".join(
        f"| {_names(one)} | {one.meaning.replace('|', chr(92) + '|')} |\n" for one in arguments
    )
    return "| argument | meaning |\n|---|---|\n" + rows


def _names(one: Argument) -> str:
    return f"`{one.short}`, `{one.name}`" if one.short else f"`{one.name}`"


if __name__ == "__main__":
    main()
