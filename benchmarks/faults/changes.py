"""Changes that the control API acknowledged, and whether they are still there afterwards."""

import http.client
import itertools
import threading
import time
from urllib.parse import quote

from benchmarks.faults.outcome import HANG_S, Tally
from benchmarks.faults.server import Server

_numbers = itertools.count(1)


class Changes:
    """Creates users one after the other; remembers when each was acknowledged."""

    def __init__(self, server: Server, tally: Tally) -> None:
        self._server = server
        self._tally = tally
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="changes", daemon=True)
        self.acknowledged: dict[str, float] = {}
        """Names, and time.monotonic() of their acknowledgement."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        self._thread.join(2 * HANG_S)

    def one(self) -> bool:
        """Whether another user was created."""
        name = f"user{next(_numbers)}"
        body = {"name": name, "role": "viewer", "password": f"{name} has a long password"}
        began = time.monotonic()
        try:
            status, _ = self._server.api("POST", "/users", body, HANG_S)
        except TimeoutError:
            self._tally.note("hung", "a change of the control API")
            return False
        except (OSError, http.client.HTTPException, ValueError):
            return False
        if time.monotonic() - began > HANG_S:
            self._tally.note("hung", "a change of the control API")
        if status == 201:
            self.acknowledged[name] = time.monotonic()
        return status == 201

    def lost(self, after: float = 0.0) -> list[str]:
        """Acknowledged after that time, and not there now. Raises OSError, HTTPException."""
        found: set[str] = set()
        path = "/users?limit=100"
        while path:
            status, page = self._server.api("GET", path)
            if status != 200:
                raise OSError(f"the users cannot be listed: {status} {page}")
            found |= {one["name"] for one in page["items"]}
            following = page.get("next")
            path = f"/users?limit=100&cursor={quote(following)}" if following else ""
        return [name for name, at in self.acknowledged.items() if at >= after and name not in found]

    def _run(self) -> None:
        while not self._ending.is_set():
            self.one()
            self._ending.wait(0.02)
