"""A command as a row of a table: its words, its arguments, and what it does with an Api."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from server.cli.commands.client import ApiClient
from server.cli.commands.output import Shown


class CommandFailed(Exception):
    """Base of what a command itself cannot do; the message is one line for the person."""


@dataclass(frozen=True, slots=True)
class Argument:
    """A flag ("--role") or a positional ("NAME"); `options` are argparse's; `short`: "-r", if it
    has that too."""

    name: str
    meaning: str
    options: Mapping[str, Any] = field(default_factory=dict)
    short: str = ""

    @property
    def is_flag(self) -> bool:
        return self.name.startswith("--")


@dataclass(frozen=True, slots=True)
class CliCommand:
    """`words` e.g. "user add". `run` gets what was given and the server's Api, and returns what is
    to be shown. A command with `alone` needs no server, and its Api asks nobody; one that is
    `local` takes no flag that says where a server is either."""

    words: str
    meaning: str
    run: Callable[[argparse.Namespace, ApiClient], Shown]
    arguments: tuple[Argument, ...] = ()
    alone: bool = False
    local: bool = False


def argument(name: str, meaning: str, short: str = "", **options: Any) -> Argument:
    return Argument(name, meaning, options, short)


def whole(text: str) -> int:
    """In place of `int`, whose refusal names Python's type."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from None


def limited(usual: int = 100) -> Argument:
    """How many things a list shows."""
    return argument("--limit", f"Show at most so many. [{usual}]", type=whole, default=usual)
