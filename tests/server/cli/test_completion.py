"""Completion as each shell that is here does it, from the script that is printed."""

import shutil
import subprocess

import pytest

from server.cli.completion import SHELLS, script
from server.cli.main import make_parser

LINES = {
    "modelyard stat": "status",
    "modelyard user a": "add",
    "modelyard user add --ro": "--role",
    "modelyard serve --http-po": "--http-port",
    "modelyard --state-dir x completion fi": "fish",
}
_BASH = """{script}
COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _modelyard; echo "${{COMPREPLY[@]}}"
"""


def ran(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(("line", "expected"), LINES.items())
def test_bash_completes(line: str, expected: str) -> None:
    program = _BASH.format(script=script("bash", make_parser()), line=line)
    assert expected in ran("bash", "--norc", "-c", program).split()


@pytest.mark.skipif(not shutil.which("fish"), reason="there is no fish here")
@pytest.mark.parametrize(("line", "expected"), list(LINES.items())[:4])
def test_fish_completes(line: str, expected: str) -> None:
    program = f"{script('fish', make_parser())}\ncomplete -C '{line}'"
    assert expected in ran("fish", "--no-config", "-c", program).split()


@pytest.mark.skipif(not shutil.which("zsh"), reason="there is no zsh here")
def test_zsh_reads_its_script_and_knows_the_words() -> None:
    program = "compdef() { :; }\n" + script("zsh", make_parser())
    said = ran("zsh", "-f", "-c", f"{program}\n_modelyard_words 'user add'")
    assert "--role" in said.split()


def test_every_command_is_in_every_script() -> None:
    for shell in SHELLS:
        text = script(shell, make_parser())
        assert all(word in text for word in ("serve", "rollout promote-full", "experiment"))
