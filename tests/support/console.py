"""The console behind a real socket: `with console_over(database, folder) as c`, then a `Person`.

`Person` keeps a session's cookie and sends forms as a browser does: Origin, the form's token.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from control.api.app import admin_app
from control.services import ControlServices
from control.sql.database import Database
from server.control_process.console import console
from support.admin import PASSWORD, Answered, Api, api

COOKIE = "modelyard_session"
_TOKEN = re.compile(r'name="token" value="([0-9a-f]{64})"')


@dataclass
class Person:
    """Somebody with a browser that runs no scripts. `cookie`: the session's, "" before."""

    api: Api
    cookie: str = ""
    token: str = ""
    extra: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, **headers: str) -> Answered:
        said = {"Accept": "text/html", **self._cookie(), **headers}
        found = self.api.ask("GET", f"/{path}", headers=said)
        if token := _TOKEN.search(found.text):
            self.token = token[1]
        return found

    def post(self, path: str, form: Mapping[str, Any], **headers: str) -> Answered:
        """Send a form; `token=""` in it leaves the token out."""
        filled = {"token": self.token, **form}
        body = urlencode(filled, doseq=True).encode()
        said = {
            "Accept": "text/html",
            "Content-Type": "application/x-www-form-urlencoded",
            "Origin": self.api.url,
            **self._cookie(),
            **headers,
        }
        kept = {name: value for name, value in said.items() if value}
        found = self.api.ask("POST", f"/{path}", body, headers=kept)
        self._keep(found)
        return found

    def log_in(self, name: str, password: str = PASSWORD) -> Answered:
        found = self.post("/login", {"name": name, "password": password})
        self.get("/access")
        return found

    def _cookie(self) -> dict[str, str]:
        return {"Cookie": f"{COOKIE}={self.cookie}"} if self.cookie else {}

    def _keep(self, found: Answered) -> None:
        said = found.headers.get("set-cookie", "")
        if said.startswith(f"{COOKIE}="):
            self.cookie = said.partition("=")[2].partition(";")[0].strip('"')


def build(services: ControlServices) -> Any:
    """The API and the console as the control process serves them, without git."""
    return admin_app(services, console(services))


@contextmanager
def console_over(database: Database, folder: Path, **changes: Any) -> Iterator[Api]:
    """Serve the console over `database`; `changes` are fields of Services."""
    with api(database, folder, build=build, **changes) as running:
        yield running


def person(running: Api, role: str, name: str = "") -> Person:
    """A new user of that role, logged in."""
    called = name or role
    running.user(called, role)
    one = Person(running)
    found = one.log_in(called)
    assert found.status == 303, found.body
    return one
