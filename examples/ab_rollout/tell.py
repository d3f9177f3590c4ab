"""Tells the story of four versions in about two minutes: `python -m examples.ab_rollout.tell`.

Version 2 takes over step by step, version 3 fails one request in ten and version 4 takes
twice as long; both are rolled back. Needs a running `modelyard serve`, started by the same user.
"""

import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from examples.ab_rollout.crowd import sending, wait_ready
from examples.arguments import addresses_in, parser_for

HERE = Path(__file__).parent
VERSIONS = (
    ("is as quick as version 1", {"delay_ms": 15, "fails_every": 0}),
    ("fails one request in ten", {"delay_ms": 15, "fails_every": 10}),
    ("takes twice as long", {"delay_ms": 30, "fails_every": 0}),
)
"""From version 2 on."""


def main() -> None:
    """Print what happens, and what the clients see of it."""
    parser = parser_for(__doc__)
    parser.add_argument("--state-dir", help="the server's state folder; .modelyard by default")
    given = parser.parse_args()
    story = Story(given)
    print(f"== version 1 of {story.model} is pushed")
    story.push(1, {"delay_ms": 15, "fails_every": 0})
    address = addresses_in(given).grpc
    wait_ready(address, story.model)
    story.command(
        "route",
        "set",
        story.model,
        "--arm",
        f"stable={story.model}:1=100",
        "--unit",
        "header:x-user",
    )
    with story.folder, sending(address, story.model) as crowd:
        for number, (words, terms) in enumerate(VERSIONS, 2):
            print(f"== version {number}, which {words}, is pushed")
            crowd.told()
            story.push(number, terms)
            story.follow()
            print(f"   meanwhile {crowd.told()}", flush=True)
    print(f"== served now: {story.served()}")


class Story:
    """A repository, a model and a token of this run's own."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.model = f"shop-{secrets.token_hex(3)}"
        self.folder = tempfile.TemporaryDirectory()
        self._work = Path(self.folder.name)
        self._where = ("--state-dir", given.state_dir) if given.state_dir else ()
        said = self.command("repo", "create", self.model, "--formats", "python,config")
        self._url = said.split()[-1]
        self.command("user", "add", self.model, "--role", "operator")
        scope = ("--scope", f"push:{self.model}:*")
        self._token = self.command("token", "create", "example", "--user", self.model, *scope)
        self._git("init", "-q", "-b", "main")

    def push(self, number: int, terms: dict[str, int]) -> None:
        """Add a version to the model and push it."""
        home = self._work / "models" / self.model
        version = home / str(number)
        version.mkdir(parents=True)
        shutil.copy(HERE / "config.pbtxt", home)
        shutil.copy(HERE / "model.py", version)
        (version / "terms.json").write_text(json.dumps(terms))
        self._git("add", "-A")
        self._git("commit", "-q", "-m", f"version {number}")
        self._git("push", "-q", self._url, "main")

    def follow(self) -> None:
        """Print the events of the newest rollout, in words, until it ends, and why if it was taken
        back."""
        self._modelyard("rollout", "follow", self.model)

    def served(self) -> str:
        found = json.loads(self.command("route", "show", self.model, "--json"))
        return f"version {found['arms'][0]['version']} of {self.model}"

    def command(self, *words: str) -> str:
        """What `modelyard` prints. Raises SystemExit with what it says when it fails."""
        done = self._modelyard(*words, output=subprocess.PIPE)
        if done.returncode:
            raise SystemExit(done.stderr.strip())
        return done.stdout.strip()

    def _modelyard(
        self, *words: str, output: int | None = None
    ) -> "subprocess.CompletedProcess[str]":
        sys.stdout.flush()
        command = [sys.executable, "-m", "server.cli", *words, *self._where]
        return subprocess.run(
            command, stdout=output, stderr=output, text=True, timeout=180, check=False
        )

    def _git(self, *words: str) -> None:
        helper = "!f() { echo username=example; echo password=$MODELYARD_TOKEN; }; f"
        given: Sequence[str] = (
            "git",
            "-c",
            "user.name=example",
            "-c",
            "user.email=example@localhost",
            "-c",
            "credential.helper=",
            "-c",
            f"credential.helper={helper}",
        )
        environment = {**os.environ, "MODELYARD_TOKEN": self._token}
        subprocess.run([*given, *words], cwd=self._work, env=environment, timeout=120, check=True)


if __name__ == "__main__":
    main()
