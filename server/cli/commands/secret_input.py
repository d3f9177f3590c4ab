"""Passwords and tokens from files, prompts or the environment, never from the command line."""

import getpass
import os
import sys
from pathlib import Path

from server.cli.commands.command import CommandFailed

TOKEN_VARIABLE = "MODELYARD_TOKEN"


class UnreadableSecret(CommandFailed):
    """A file or a prompt that gave no secret."""


def read_token(file: str | None) -> str:
    """The token to use, "" for none."""
    if file is not None:
        return read_secret(file)
    return os.environ.get(TOKEN_VARIABLE, "").strip()


def read_secret(file: str) -> str:
    """The first line of a file, or of stdin for "-". Raises UnreadableSecret."""
    try:
        text = sys.stdin.readline() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UnreadableSecret(f"{file} cannot be read: {reason}") from error
    line = text.partition("\n")[0].strip("\r")
    if not line:
        raise UnreadableSecret(f"{file} is empty")
    return line


def at_a_terminal() -> bool:
    """Whether a person reads what is printed and can be asked for something."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def prompt_password(name: str, note: str = "") -> str:
    """Asked for twice on the terminal, "" where Enter alone is given. Raises UnreadableSecret."""
    if not sys.stdin.isatty():
        raise UnreadableSecret("there is no terminal to ask for the password; use --password-file")
    first = getpass.getpass(f"Password for {name}{note}: ")
    if first and getpass.getpass("Again: ") != first:
        raise UnreadableSecret("the two passwords differ")
    return first
