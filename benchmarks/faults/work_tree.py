"""A working copy of a repository of the server, and the right to push to it."""

import os
import subprocess
from collections.abc import Sequence

from benchmarks.faults.server import Server

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    **{
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "a"), ("EMAIL", "a@example.com"))
    },
}
"""Nobody's git config, and an author."""


class WorkTree:
    """Makes the repository, a user and a token on the server; raises OSError where it refuses."""

    def __init__(self, server: Server, name: str, formats: Sequence[str] = ()) -> None:
        self.folder = server.folder / f"work-{name}"
        self._prefix = server.surroundings.prefix
        self.folder.mkdir()
        self.git("init", "-q", "-b", "main")
        wanted = {"name": name, "settings": {"formats": list(formats)} if formats else {}}
        pusher = {"name": f"pusher-{name}", "role": "operator", "password": "a long password 1"}
        scopes = {
            "name": "push",
            "user": pusher["name"],
            "scopes": [f"push:{name}:*"],
        }
        for path, body in (("/repositories", wanted), ("/users", pusher), ("/tokens", scopes)):
            status, made = server.api("POST", path, body)
            if status != 201:
                raise OSError(f"no working copy of {name}: POST {path}: {status} {made}")
        self.url = f"http://x:{made['text']}@127.0.0.1:{server.ports[3]}/git/{name}.git"

    def commit(self, message: str) -> None:
        """Everything in the folder. Raises OSError."""
        self.git("add", "-A")
        self.git("commit", "-qm", message)

    def command(self, *words: str) -> list[str]:
        return [*self._prefix, "git", *words]

    def git(self, *words: str) -> str:
        """What it printed. Raises OSError."""
        done = subprocess.run(
            self.command(*words),
            cwd=self.folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        if done.returncode:
            raise OSError(f"git {words[0]}: {done.stderr[-300:]}")
        return done.stdout.strip()
