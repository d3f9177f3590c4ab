"""What a newcomer is told, and where: the command line, the log, the index, the console."""

import html
import http.client
import os
import re
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import urlencode

from support import preloaded
from support.server import ROOT, Server

PASSWORD = "correct horse battery staple"

Pages = Callable[[str], str]
"""A model's name → the text of its page in the console."""


def modelyard(
    *words: str, cwd: Path = ROOT, environment: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    whole = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
    return preloaded.run(words, whole, cwd, timeout=120)


def said_everywhere(server: Server, pages: Pages, model: str, reason: str, remedy: str) -> None:
    """One readable reason with a remedy is in the index, once on the log and in the console."""
    rows = [row for row in server.index() if row["name"] == model]
    (whole,) = {row["reason"] for row in rows}
    assert reason in whole
    assert remedy in whole
    readable(whole)
    (flag,) = [one for one in server.command if one.startswith("--model-repository=")]
    folder = flag.partition("=")[2]
    lines = [one for one in server.log().splitlines() if " ERROR " in one]
    assert sum(whole in one.replace(f"{folder}/", "") for one in lines) == 1
    page = pages(model)
    assert reason in page
    assert remedy in page


def readable(text: str) -> None:
    """One line, no signatures of C++, no Python repr of an exception's class path, no escapes."""
    assert "\n" not in text
    assert "\\n" not in text
    assert not re.search(r"\w::\w|std::|0x[0-9a-f]{6}|Traceback", text)
    assert len(text) < 600


def console_pages(server: Server, state: Path) -> Pages:
    """The console's page of a model, for somebody who has logged in."""
    password = state.parent / "password"
    password.write_text(PASSWORD)
    words = ("user", "add", "ada", "--role", "admin", "--password-file", str(password))
    assert modelyard(*words, "--state-dir", str(state)).returncode == 0
    found = re.search(r"^admin +http://127.0.0.1:(\d+)", server.log(), re.MULTILINE)
    assert found
    port = int(found[1])
    headers = {
        "Origin": f"http://127.0.0.1:{port}",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    form = urlencode({"name": "ada", "password": PASSWORD})
    _, answered, _ = _ask(port, "POST", "/login", form, headers)
    cookie = str(answered["Set-Cookie"]).partition(";")[0]

    def page(name: str) -> str:
        wanted = {"Cookie": cookie, "Accept": "text/html"}
        status, _, text = _ask(port, "GET", f"/models/{name}", None, wanted)
        assert status == 200
        return html.unescape(text)

    return page


def _ask(
    port: int, verb: str, path: str, body: str | None, headers: dict[str, str]
) -> tuple[int, http.client.HTTPMessage, str]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request(verb, path, body, headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode()
