"""What changes on the server meanwhile: pushes and their rollouts, weights, versions in folders."""

import http.client
import random
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from benchmarks.faults.server import Server
from benchmarks.faults.work_tree import WorkTree
from benchmarks.soak import models

EFFECT_S = 180.0
"""A version that was accepted, or is there, answers within this time; a rollout moves on."""
KEPT = 3
"""Versions of the pushed model; older ones are removed by the next push."""
ENDED = ("healthy", "degraded", "aborted", "superseded", "rolled_back")
Notice = Callable[[str, Mapping[str, Any]], None]


class Changes:
    """Two threads: one pushes and follows the rollout, one moves weights and folders."""

    def __init__(self, server: Server, notice: Notice, began: float, pause: float) -> None:
        self._server = server
        self._notice = notice
        self._began = began
        self._pause = pause
        self._random = random.Random(1)
        self._ending = threading.Event()
        self._tree: WorkTree | None = None
        self._pushed = 0
        self._added = {"turn": 1, "echo": 1}
        self.recent: deque[tuple[float, str]] = deque(maxlen=50)
        self._threads = [
            threading.Thread(target=self._repeat, args=(self._push, 3.0), name="pushes"),
            threading.Thread(target=self._repeat, args=(self._move, 1.0), name="moves"),
        ]

    def prepare(self) -> None:
        """The routes, and the first version of the pushed model. Raises OSError."""
        arms = [
            {"name": name, "model": "split", "version": number, "weight": 50}
            for number, name in ((1, "one"), (2, "two"))
        ]
        made: Any = None

        def is_made() -> bool:  # refused until the control process has heard of the folder's models
            nonlocal made
            status, made = self._server.api("PUT", "/routes/split-route", {"arms": arms})
            return status in (200, 201)

        if not self._eventually(is_made):
            raise OSError(f"no route: {made}")
        self._tree = WorkTree(self._server, "soak", ("python", "config"))
        if problem := self._push():
            raise OSError(problem)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(2 * EFFECT_S)

    def since(self, moment: float) -> list[str]:
        """What began or ended after that moment of time.monotonic()."""
        return [text for at, text in list(self.recent) if at >= moment]

    def _repeat(self, change: Callable[[], str], times: float) -> None:
        while not self._ending.wait(self._random.uniform(0.5, 1.5) * self._pause * times):
            began = time.monotonic()
            try:
                failed = change()
            except (OSError, http.client.HTTPException, ValueError) as error:
                failed = repr(error)
            if failed and not self._ending.is_set():
                self._event(change.__name__.strip("_"), failed=failed, began=began)

    def _push(self) -> str:
        """The next version, pushed; its rollout is followed to its end."""
        assert self._tree is not None
        self._pushed += 1
        number, home = self._pushed, self._tree.folder / "models" / "shop"
        began = time.monotonic()
        models.write_plus(
            home, number, more=models.rollout_config() + "version_policy { all {} }\n"
        )
        if number > KEPT:
            shutil.rmtree(home / str(number - KEPT))
        self._tree.commit(f"version {number}")
        self._tree.git("push", "-q", self._tree.url, "HEAD:main")
        self._event("push", f"shop {number}", began)
        if not self._eventually(lambda: self._answers("shop", number)):
            return f"shop {number} was accepted and does not answer after {EFFECT_S:.0f} s"
        self._event("loaded", f"shop {number}", began)
        return self._follow(number) if number > 1 else ""

    def _follow(self, number: int) -> str:
        """Until the rollout of this version is over; why it is not as it should be."""
        began = time.monotonic()
        found: dict[str, Any] = {}

        def over() -> bool:
            status, page = self._server.api("GET", "/rollouts?name=shop&limit=1")
            if status == 200 and page["items"]:
                found.update(page["items"][0])
            return found.get("candidate") == number and found.get("phase") in ENDED

        if not self._eventually(over):
            return "" if self._ending.is_set() else f"the rollout of shop {number} stands: {found}"
        self._event("rollout", f"shop {number}: {found['phase']}", began)
        return "" if found["phase"] == "healthy" else f"the rollout of shop {number}: {found}"

    def _move(self) -> str:
        return self._random.choice((self._weigh, self._weigh, self._turn, self._turn, self._list))()

    def _weigh(self) -> str:
        began, share = time.monotonic(), self._random.choice((0, 10, 50, 90, 100))
        status, found = self._server.api(
            "PATCH", "/routes/split-route", {"weights": {"two": share}}
        )
        self._event("weights", f"two={share}", began)
        if status != 200:
            return f"the weights were refused: {status} {found}"
        got = {arm["name"]: arm["weight"] for arm in found["arms"]}
        return "" if got.get("two") == share else f"{got} instead of {share}"

    def _turn(self) -> str:
        """A further version copied into a folder, answering; then the one before it removed."""
        began, name = time.monotonic(), self._random.choice(tuple(self._added))
        home, number = self._server.repository / name, self._added[name] + 1
        old = home / str(number - 1)
        shutil.copytree(old, home / str(number), dirs_exist_ok=True)
        if name == "echo":
            (home / str(number) / "model.txt").write_text(f"version {number}\n")
        if not self._eventually(lambda: self._answers(name, number)):
            return f"{name} {number} does not answer after {EFFECT_S:.0f} s"
        self._added[name] = number
        shutil.rmtree(old)
        self._event("folder", f"{name} {number}, {number - 1} removed", began)
        return ""

    def _list(self) -> str:
        """What operators look at."""
        began = time.monotonic()
        for path in ("/server", "/routes", "/events?limit=100", "/rollouts?limit=20"):
            status, found = self._server.api("GET", path)
            if status != 200:
                return f"GET {path}: {status} {found}"
        self._event("lists", "", began)
        return ""

    def _answers(self, name: str, number: int) -> bool:
        with suppress(OSError, http.client.HTTPException):
            return self._server.get(f"/v2/models/{name}/versions/{number}/ready")[0] == 200
        return False

    def _eventually(self, is_so: Callable[[], bool]) -> bool:
        until = time.monotonic() + EFFECT_S
        while not is_so():
            if time.monotonic() > until or self._ending.wait(0.5):
                return self._ending.is_set()
        return True

    def _event(self, kind: str, what: str = "", began: float = 0.0, failed: str = "") -> None:
        now = time.monotonic()
        self.recent.append((now, f"{kind} {what or failed} took {now - began:.1f} s".strip()))
        row = {"at": round(now - self._began, 1), "kind": kind, "what": what}
        self._notice("event", {**row, "took": round(now - began, 2), "failed": failed[:500]})
