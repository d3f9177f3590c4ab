"""The command `tritonserver`: start scripts written for Triton start this server.

Flags are read as Triton reads them, become our settings (`server.settings.triton_flags`), and the
server is that of `modelyard serve`. What has no meaning here is told once, and an unknown flag is
refused.
"""

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from server.cli.repository_folders import folders_problem
from server.process.signals import end_on_signals
from server.settings.sources import nearest, read_settings
from server.settings.table import Settings, SettingsError
from server.settings.triton_flags import (
    BARE,
    DEFAULTS,
    GROUPS,
    IGNORED,
    OURS,
    TRANSLATED,
    FlagSupport,
    FlagTranslation,
    UnsupportedFlagValue,
    all_flags,
    fate,
    translate,
)

_log = logging.getLogger(__name__)


class TritonCommand(NamedTuple):
    """What a command line asks for; `notes`: what is to be told about it."""

    settings: Settings
    notes: tuple[str, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve as `tritonserver` would; the exit status: Triton's 1 for a command line that cannot
    be followed, else that of `modelyard serve`."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if any(one in ("--help", "-h", "--help=true") for one in given):
        sys.stdout.write(help_text())
        return 0
    try:
        command = read_command(given, os.environ, Path.cwd())
    except SettingsError as error:
        sys.stderr.write(f"tritonserver: {error}\n")
        return 1
    end_on_signals()
    from server.app import serve
    from server.logs.lines import LOG, log_settings

    with suppress(OSError):  # `serve` tells of a log file that cannot be opened
        LOG.set_up(log_settings(command.settings))
    for note in command.notes:
        _log.warning("%s", note)
    return serve(command.settings)


def read_command(
    arguments: Sequence[str], environment: "os._Environ[str] | dict[str, str]", folder: Path
) -> TritonCommand:
    """The settings and notes of a command line. Raises SettingsError naming flag and value."""
    flags: dict[str, str | list[str]] = {}
    given: dict[str, list[str]] = {}
    notes: list[str] = []
    for flag, value in _pairs(arguments):
        try:
            found = translate(flag, value)
        except UnsupportedFlagValue as error:
            raise SettingsError(f"--{flag}: {error}") from None
        if found.note:
            notes.append(found.note)
        if found.setting:
            _check_value(flag, value, found)
            _put(flags, found.setting, found.value)
            given.setdefault(found.setting, []).append(f"--{flag}")
    try:
        settings = read_settings(flags, environment, folder, DEFAULTS)
    except SettingsError as error:
        raise SettingsError(_in_words_of(str(error), given)) from None
    if settings.source("model_repository") == "default":
        raise SettingsError("name a folder of models with --model-repository")
    if problem := folders_problem(settings):
        raise SettingsError(problem)
    silent = [
        front_end
        for front_end in ("http", "grpc")
        if f"{front_end}_address" not in settings.sources
    ]
    if silent:
        front_ends = " and ".join(f"--{front_end}-address" for front_end in silent)
        notes.append(
            f"{front_ends} not given: listening on 127.0.0.1 alone, where Triton listens on every "
            "address; for that say 0.0.0.0, and --inference-auth=token, or "
            "--allow-unauthenticated if the network is yours"
        )
    return TritonCommand(settings, tuple(notes))


def _pairs(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each flag with its value, from `--flag=value`, `--flag value` and a bare `--flag`."""
    waiting = list(reversed(arguments))
    while waiting:
        name, equals, value = waiting.pop().partition("=")
        flag = _checked(name)
        if not equals:
            value = _value_after(flag, waiting)
        yield flag, value


def _checked(name: str) -> str:
    flag = name.removeprefix("--")
    if flag == name or not flag:
        raise SettingsError(f"there is no argument '{name}'; flags begin with --")
    if flag not in all_flags():
        hint = nearest(name, [f"--{one}" for one in sorted(all_flags())])
        raise SettingsError(f"there is no flag '{name}'{hint} (see tritonserver --help)")
    return flag


def _value_after(flag: str, waiting: list[str]) -> str:
    if waiting and not waiting[-1].startswith("--"):
        return waiting.pop()
    if flag in BARE:
        return "true"
    raise SettingsError(f"--{flag} needs a value")


def _check_value(flag: str, value: str, found: FlagTranslation) -> None:
    """Refuse a value of a translated flag in the words of that flag. Raises SettingsError."""
    kind = OURS[found.setting.replace("_", "-")].kind
    try:
        kind.read(found.value)
    except ValueError:
        shown = kind.shown(value if found.allowed else found.value)
        allowed = found.allowed or kind.allowed
        hint = nearest(found.value, kind.choices)
        raise SettingsError(f"--{flag}: '{shown}' is not {allowed}{hint}") from None


def _in_words_of(text: str, given: Mapping[str, list[str]]) -> str:
    """A complaint about a setting, naming the flags that it was given by."""
    for setting, flags in given.items():
        own = "--" + setting.replace("_", "-")
        if text.startswith(f"{own}: ") and own not in flags:
            reason = text.removeprefix(f"{own}: ").removeprefix(f"{setting}: ")
            return f"{', '.join(dict.fromkeys(flags))}: {reason}"
    return text


def _put(flags: dict[str, str | list[str]], setting: str, value: str) -> None:
    """Of a repeated flag every value counts if the setting is a list, else the last."""
    if not OURS[setting.replace("_", "-")].repeat:
        flags[setting] = value
        return
    listed = flags.setdefault(setting, [])
    assert isinstance(listed, list)
    listed.append(value)


def help_text() -> str:
    """Every flag of Triton's and what becomes of it."""
    lines = [
        "usage: tritonserver --model-repository=FOLDER [--flag=value] [--flag value]",
        "",
        "This is Modelyard, started with Triton's flags. Its own settings are taken too: see",
        "modelyard serve --help. Flags in [brackets] are accepted and have no effect.",
    ]
    for group, flags in GROUPS.items():
        lines += ["", group]
        lines += [f"  {_shown(flag)}  {meaning(flag)}" for flag in flags]
    return "\n".join(lines) + "\n"


def _shown(flag: str) -> str:
    name = f"--{flag}"
    return (f"[{name}]" if fate(flag) is FlagSupport.IGNORED else name).ljust(34)


def meaning(flag: str) -> str:
    """What becomes of a flag, in a few words."""
    match fate(flag):
        case FlagSupport.SETTING:
            default = DEFAULTS.get(OURS[flag].name, OURS[flag].default_text)
            return f"{OURS[flag].text} [{default}]"
        case FlagSupport.TRANSLATED:
            return TRANSLATED[flag][0].replace("`", "")
    return IGNORED[flag]


if __name__ == "__main__":
    sys.exit(main())
