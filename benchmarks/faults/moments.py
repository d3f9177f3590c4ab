"""What the server is doing when the fault comes: each begins something and returns within it."""

import http.client
import itertools
import json
import subprocess
import threading
import time
from collections.abc import Callable
from weakref import WeakKeyDictionary

from benchmarks.faults import models
from benchmarks.faults.changes import Changes
from benchmarks.faults.outcome import HANG_S, Tally
from benchmarks.faults.server import Server
from benchmarks.faults.work_tree import ENVIRONMENT, WorkTree

End = Callable[[], None]

_versions, _commits = itertools.count(2), itertools.count(1)
_trees: WeakKeyDictionary[Server, WorkTree] = WeakKeyDictionary()
"""One for each server: it lives as long as the repository it pushes to."""


class Moments:
    """The activities of one server; `pushed` are pushes that git reported as accepted."""

    def __init__(self, server: Server, tally: Tally, changes: Changes) -> None:
        self._server = server
        self._tally = tally
        self._changes = changes
        self.pushed: dict[str, str] = {}

    def begin(self, moment: str) -> End:
        """Start it; what is returned waits for its end, within bounds."""
        return getattr(self, f"_{moment}")()  # type: ignore[no-any-return]

    def _idle(self) -> End:
        return lambda: None

    def _change(self) -> End:
        self._changes.start()
        return self._changes.stop

    def _load(self) -> End:
        """A further version of `double`, whose `initialize` takes a second."""
        number = next(_versions)
        models.add_version(self._server.repository, "double", number)
        models.add_version(self._server.repository, "echo", number)
        time.sleep(0.3)  # into the settling, the check or the load
        return lambda: None

    def _stream(self) -> End:
        """Eight readers of a decoupled model and of a language model; each stream ends somehow."""
        chat = {"model": "tiny", "prompt": "a", "max_tokens": 200, "stream": True}
        asks = [("/v2/models/several/generate_stream", {"INPUT0": [1.0]}),
                ("/v1/completions", chat)]  # fmt: skip
        threads = [
            threading.Thread(target=self._read, args=asks[number % 2], daemon=True)
            for number in range(8)
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        return lambda: self._join(threads)

    def _read(self, path: str, body: object) -> None:
        server = self._server
        line = http.client.HTTPConnection(server.host, server.ports[0], timeout=HANG_S)
        try:
            line.request("POST", path, json.dumps(body))
            answer = line.getresponse()
            while answer.read(4096):
                pass
            self._tally.note("right" if answer.status == 200 else "refused")
        except TimeoutError:
            self._tally.note("hung", f"a stream of {path}")
        except (OSError, http.client.HTTPException):
            self._tally.note("broken")
        finally:
            line.close()

    def _backup(self) -> End:
        """One after the other until the fault is over."""
        ending = threading.Event()

        def run() -> None:
            while not ending.is_set():
                try:
                    self._server.download("/backup")
                except TimeoutError:
                    self._tally.note("hung", "a backup")
                except (OSError, http.client.HTTPException):
                    ending.wait(0.1)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()

        def end() -> None:
            ending.set()
            self._join([thread])

        return end

    def _push(self) -> End:
        """A push of a model with a new version; git says in the end whether it was accepted."""
        tree = self._work_tree()
        name = f"pushed{next(_commits)}"
        model = tree.folder / "models" / name
        (model / "1").mkdir(parents=True)
        (model / "1" / "model.txt").write_text(f"{name}\n")
        (model / "config.pbtxt").write_text(
            f'name: "{name}" backend: "identity"\n'
            'input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 }\n'
            'output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }\n'
        )
        tree.commit(name)
        pushing = subprocess.Popen(
            tree.command("push", "-q", tree.url, "main"),
            cwd=tree.folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        time.sleep(0.15)

        def end() -> None:
            try:
                said, _ = pushing.communicate(timeout=3 * HANG_S)
            except subprocess.TimeoutExpired:
                pushing.kill()
                said, _ = pushing.communicate()
                self._tally.note("hung", f"a push: {said[-200:]!r}")
                return
            if pushing.returncode == 0:
                self.pushed[name] = tree.git("rev-parse", "HEAD")

        return end

    def lost_pushes(self) -> list[str]:
        """Accepted, and not in the repository now. Raises OSError."""
        if not self.pushed:
            return []
        tree = self._work_tree()
        head = tree.git("ls-remote", tree.url, "refs/heads/main")[:40]
        missing = []
        for name, commit in self.pushed.items():
            done = subprocess.run(
                ["git", "merge-base", "--is-ancestor", commit, head],
                cwd=tree.folder, env=ENVIRONMENT, capture_output=True, check=False, timeout=60,
            )  # fmt: skip
            if done.returncode:
                missing.append(name)
        return missing

    def _work_tree(self) -> WorkTree:
        if self._server not in _trees:
            _trees[self._server] = WorkTree(self._server, "vision")
        return _trees[self._server]

    def _join(self, threads: list[threading.Thread]) -> None:
        for thread in threads:
            thread.join(2 * HANG_S + 10)
            if thread.is_alive():
                self._tally.note("hung", "a reader never came back")
