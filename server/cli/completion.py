"""Completion for shells: commands and flags of a parser as a script for bash, zsh or fish. Pure.

What stands for a file is completed as one; a script knows no model's name, because it asks nobody.
"""

import argparse
from collections.abc import Iterator
from typing import NamedTuple

SHELLS = ("bash", "zsh", "fish")


class _Word(NamedTuple):
    text: str
    meaning: str


class _Place(NamedTuple):
    """A command line so far ("user add") and the words that may follow it."""

    at: str
    words: list[_Word]
    flags: list[_Word]


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """What `shell` is to read."""
    places = list(_places(parser, ""))
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](places)


def _places(parser: argparse.ArgumentParser, at: str) -> Iterator[_Place]:
    words, flags, below = [], [], []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {one.dest: one.help or "" for one in action._choices_actions}
            for name, child in action.choices.items():
                words.append(_Word(name, helps.get(name, "")))
                below.append((f"{at} {name}".strip(), child))
        for flag in action.option_strings:
            text = "" if action.help in (None, argparse.SUPPRESS) else str(action.help)
            flags.append(_Word(flag, text))
        if action.choices and not action.option_strings and not below:
            words += [_Word(str(one), "") for one in action.choices]
    yield _Place(at, words, flags)
    for place, child in below:
        yield from _places(child, place)


_BASH = """\
# Completion of modelyard for bash: source <(modelyard completion bash)
_modelyard_words() {
    case "$1" in
@CASES@
    esac
}
_modelyard() {
    local current=${COMP_WORDS[COMP_CWORD]} at="" word number
    for ((number = 1; number < COMP_CWORD; number++)); do
        word=${COMP_WORDS[number]}
        case " $(_modelyard_words "$at") " in
        *" $word "*) [[ $word == -* ]] || at="${at:+$at }$word" ;;
        esac
    done
    COMPREPLY=($(compgen -W "$(_modelyard_words "$at")" -- "$current"))
}
complete -o default -F _modelyard modelyard
"""

_ZSH = """\
#compdef modelyard
# Completion of modelyard for zsh: source <(modelyard completion zsh)
_modelyard_words() {
    case "$1" in
@CASES@
    esac
}
_modelyard() {
    local at="" word
    for word in ${words[2,CURRENT-1]}; do
        case " $(_modelyard_words "$at") " in
        *" $word "*) [[ $word == -* ]] || at="${at:+$at }$word" ;;
        esac
    done
    compadd -- $(_modelyard_words "$at")
    _files
}
compdef _modelyard modelyard
"""

_FISH = """\
# Completion of modelyard for fish: modelyard completion fish | source
function __modelyard_at
    set -l at (commandline -opc | tail -n +2 | string match -v -- '-*')
    test "$at" = "$argv[1]"
    or begin; test -n "$argv[2]"; and string match -q -- "$argv[1] *" "$at"; end
end
"""


def _cases(places: list[_Place]) -> str:
    rows = []
    for place in places:
        words = " ".join(one.text for one in (*place.words, *place.flags))
        rows.append(f'    "{place.at}") echo "{words}" ;;')
    return "\n".join(rows)


def _bash(places: list[_Place]) -> str:
    return _BASH.replace("@CASES@", _cases(places))


def _zsh(places: list[_Place]) -> str:
    return _ZSH.replace("@CASES@", _cases(places))


def _fish(places: list[_Place]) -> str:
    return _FISH + "".join(line for place in places for line in _fish_lines(place))


def _fish_lines(place: _Place) -> Iterator[str]:
    for word in place.words:
        condition = _fish_quoted(f"__modelyard_at '{place.at}'")
        yield (
            f"complete -c modelyard -f -n {condition} -a {word.text}"
            f" -d {_fish_quoted(word.meaning)}\n"
        )
    for flag in place.flags:
        condition = _fish_quoted(f"__modelyard_at '{place.at}' below")
        kind = "-l" if flag.text.startswith("--") else "-s"
        yield (
            f"complete -c modelyard -n {condition} {kind} {flag.text.lstrip('-')}"
            f" -d {_fish_quoted(flag.meaning)}\n"
        )


def _fish_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
