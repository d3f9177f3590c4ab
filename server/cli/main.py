"""The command line: `modelyard serve | demo | check | version`, and what
`server.cli.commands` asks a server.

Nothing heavy is imported before it is needed, so that help and mistakes answer at once.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from repository.findings import NOTES, counted
from server import VERSION
from server.cli.commands.table import add_commands
from server.cli.completion import SHELLS, script
from server.cli.demo import DEMO_FOLDER, Demo
from server.cli.help import demo_help, serve_help, worker_help
from server.cli.repository_folders import folders_problem
from server.process.signals import end_on_signals
from server.settings.row import Setting
from server.settings.sources import nearest, read_settings
from server.settings.table import TABLE, SettingsError

OK, FINDINGS, USAGE = 0, 1, 2
_BATCHING_BACKENDS = ("", "onnxruntime")
_TRACE_FLAGS = {
    "--trace-file": "file",
    "--trace-level": "level",
    "--trace-rate": "rate",
    "--trace-count": "count",
    "--trace-log-frequency": "log-frequency",
}
"""Triton's older flags → keys of --trace-config."""


_Commands = argparse._SubParsersAction  # argparse has no public name for it


class UsageError(Exception):
    """A command line that cannot be followed; the message is one line for the person."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 fine, 1 findings or failure, 2 usage."""
    parser = make_parser()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    try:
        given = parser.parse_args(words)
        return int(given.run(given))
    except (UsageError, SettingsError) as error:
        print(f"modelyard: {error}", file=sys.stderr)
        return USAGE


def make_parser() -> argparse.ArgumentParser:
    """The parser of every command; flags not given leave no trace in what it returns."""
    parser = _Parser(
        prog="modelyard",
        description="A multi-model inference server that speaks Triton's protocol.",
        epilog="modelyard COMMAND --help tells more about a command.",
    )
    parser.add_argument("--version", action="version", version=f"modelyard {VERSION}")
    parser.set_defaults(run=lambda _: _show(parser.format_help()))
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)
    _add_serve(commands)
    _add_demo(commands)
    _add_worker(commands)
    check = commands.add_parser(
        "check",
        help="check repositories or single models for mistakes",
        description="Check model repositories or single model folders for mistakes, one finding "
        "per line. Exit status: 0 none, 1 findings, 2 no such path.",
    )
    check.add_argument("paths", metavar="PATH", nargs="+", help="a repository or a model's folder")
    check.add_argument("--json", action="store_true", help="print the findings as JSON")
    check.set_defaults(run=lambda given: _check(given.paths, given.json))
    version = commands.add_parser("version", help="print the version; or show a model's version")
    version.set_defaults(run=lambda _: _show(f"modelyard {VERSION}\n"))
    add_commands(commands, {"version": version})
    completion = commands.add_parser(
        "completion",
        help="print a script that completes commands and flags in a shell",
        description="Print a script that completes commands and flags: "
        "source <(modelyard completion bash), likewise zsh; modelyard completion fish | source.",
    )
    completion.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))
    completion.set_defaults(run=lambda given: _show(script(given.shell, parser)))
    return parser


class _Parser(argparse.ArgumentParser):
    """argparse without abbreviations, whose mistakes are one line and name the nearest flag.

    `whole_help` makes the help text where argparse's own would not be read with pleasure.
    """

    def __init__(self, whole_help: Callable[[], str] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs, allow_abbrev=False, formatter_class=_Columns)
        self.whole_help = whole_help

    def format_help(self) -> str:
        return self.whole_help() if self.whole_help else super().format_help()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            raise UsageError(f"{self._unknown(rest[0])} (see {self.prog} --help)")
        return found, rest

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As argparse's, but does not recite twenty commands to who has misspelt one."""
        if isinstance(action, _Commands) and value not in action.choices:
            self.error(f"there is no command '{value}'{nearest(str(value), action.choices)}")
        super()._check_value(action, value)

    def _unknown(self, word: str) -> str:
        name = word.partition("=")[0]
        if not name.startswith("-"):
            return f"there is no argument '{name}'"
        if any(isinstance(action, _Commands) for action in self._actions):
            return f"there is no flag '{name}' here; a command's flags stand behind it"
        flags = [flag for action in self._actions for flag in action.option_strings]
        return f"there is no flag '{name}'{nearest(name, flags)}"

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


class _Columns(argparse.HelpFormatter):
    """With room for our longest command beside its meaning."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)


def _add_serve(commands: Any) -> None:
    parser = commands.add_parser(
        "serve",
        help="serve models over REST and gRPC",
        argument_default=argparse.SUPPRESS,
        whole_help=serve_help,
    )
    _add_settings(parser)
    parser.set_defaults(run=_serve)


def _add_demo(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        help="write the digits example into a folder and serve it",
        argument_default=argparse.SUPPRESS,
        whole_help=demo_help,
    )
    parser.add_argument("--into")
    _add_settings(parser)
    parser.set_defaults(run=_demo)


def _add_worker(commands: Any) -> None:
    parser = commands.add_parser(
        "worker",
        help="run offline jobs of a server",
        argument_default=argparse.SUPPRESS,
        whole_help=worker_help,
    )
    parser.add_argument("--queues")
    _add_settings(parser)
    parser.set_defaults(run=_worker)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    for row in TABLE:
        _add_flag(parser, row)
    parser.add_argument("--config")
    parser.add_argument("--backend-config", dest="default_max_batch_size", type=_backend_config)
    for flag, key in _TRACE_FLAGS.items():
        parser.add_argument(
            flag, dest="trace_config", action="append", type=partial("{}={}".format, key)
        )


def _add_flag(parser: argparse.ArgumentParser, row: Setting) -> None:
    if row.repeat:
        parser.add_argument(row.flag, action="append")
    elif row.kind.toml == (bool,):
        parser.add_argument(row.flag, nargs="?", const="true")
    else:
        parser.add_argument(row.flag)


def _backend_config(text: str) -> str:
    """The value of Triton's `[backend,]default-max-batch-size=N`, the one setting known of it."""
    setting, _, value = text.partition("=")
    backend, _, name = setting.rpartition(",")
    if name != "default-max-batch-size" or backend not in _BATCHING_BACKENDS:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not known; this server takes default-max-batch-size=N and "
            "onnxruntime,default-max-batch-size=N"
        )
    return value


def _serve(given: argparse.Namespace) -> int:
    end_on_signals()
    flags = {name: value for name, value in vars(given).items() if name != "run"}
    settings = read_settings(flags, os.environ, Path.cwd())
    if problem := folders_problem(settings):
        raise UsageError(problem)
    from server.app import serve

    return serve(settings)


def _worker(given: argparse.Namespace) -> int:
    end_on_signals()
    flags = {name: text for name, text in vars(given).items() if name not in ("run", "queues")}
    if named := list(filter(None, getattr(given, "queues", "").split(","))):
        flags["job_queue"] = named
    settings = read_settings(flags, os.environ, Path.cwd())
    from server.job_worker.command import work

    return work(settings, settings.job_queue)


def _demo(given: argparse.Namespace) -> int:
    end_on_signals()
    flags = {name: value for name, value in vars(given).items() if name not in ("run", "into")}
    demo = Demo(Path(getattr(given, "into", DEMO_FOLDER)))
    settings = read_settings(demo.flags(flags), os.environ, Path.cwd(), demo.defaults)
    try:
        print(demo.write())
    except OSError as error:
        raise UsageError(
            f"the example cannot be written into '{demo.folder}': {error.strerror or error}; name "
            "another folder with --into"
        ) from error
    if problem := folders_problem(settings):
        raise UsageError(problem)
    from server.app import serve

    return serve(settings, partial(demo.calls, settings))


def _check(paths: Sequence[str], as_json: bool) -> int:
    for path in paths:
        if not Path(path).is_dir():
            raise UsageError(f"'{path}' is not a folder; name a repository or a model's folder")
    from server.cli.lint import find

    findings = find([Path(path) for path in paths])
    count = sum(finding.code not in NOTES for finding in findings)
    if as_json:
        rows = [asdict(finding) for finding in findings]
        _show(json.dumps(rows, indent=2, default=str) + "\n")
        return FINDINGS if count else OK
    for finding in findings:
        print(finding)
    shown = counted(len(findings) - count, "note")
    noted = f" ({shown})" if len(findings) > count else ""
    print(f"{counted(count, 'finding')} in {', '.join(paths)}{noted}")
    return FINDINGS if count else OK


def _show(text: str) -> int:
    sys.stdout.write(text)
    return OK


if __name__ == "__main__":
    sys.exit(main())
