"""`modelyard status` and `modelyard logs`: what a running server does, and what it says of it."""

import argparse
import json
import shutil
import sys
import textwrap
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from control.clock import Moment, text_of
from control.views import LoadView, ThisServerView, to_plain
from server.cli.commands.client import ApiClient, ServerUnreachable
from server.cli.commands.colour import painted
from server.cli.commands.command import CliCommand, argument, whole
from server.cli.commands.output import MessageOutput, Shown, plain

PAUSE_S = 1.0
"""Between two looks at the log."""
PATIENCE_S = 60.0
"""How long a server that does not answer any more is asked again for its log."""
_MOST_LINES = 2000
_CLEAR = "\x1b[H\x1b[2J"
_HEADER = ("model", "version", "state", "backend", "instances", "requests", "failed", "waiting")


class _Running(msgspec.Struct, frozen=True):
    """Of GET /instances, what is shown here."""

    model: str
    version: int
    backend: str
    instances: int
    ready: int
    pending: int
    succeeded: int
    failed: int


class _Instances(msgspec.Struct, frozen=True):
    items: list[_Running]


class VersionStatus(msgspec.Struct, frozen=True):
    """A version on this server. `version` 0: the model as a whole. `state` is its health: its load
    state, or FAILING or DEGRADED where what it answers is not as it should be, since `since`
    because of `reason`. `requests` that were answered, and `failed` ones, since it was loaded;
    `per_second`: requests, where there was a look before."""

    model: str
    version: int
    state: str
    backend: str
    instances: int
    ready_instances: int
    requests: int
    failed: int
    waiting: int
    reason: str
    reason_code: str
    since: Moment
    per_second: float | None = None


class ServerStatus(msgspec.Struct, frozen=True):
    server: str
    software: str
    url: str
    versions: list[VersionStatus]


class PrintedLine(msgspec.Struct, frozen=True):
    at: Moment
    level: str
    process: str
    text: str


class PrintedLog(msgspec.Struct, frozen=True):
    items: list[PrintedLine]
    next: str


def status(given: argparse.Namespace, api: ApiClient) -> Shown:
    """Once, or until interrupted; then with the requests a second since the last look."""
    before: ServerStatus | None = None
    while given.watch:
        before = _with_rates(_status(api), before, given.watch)
        _draw(before, given.json)
        time.sleep(given.watch)
    found = _status(api)
    return MessageOutput(_text(found), found)


def _status(api: ApiClient) -> ServerStatus:
    server = api.get("/server", ThisServerView)
    loads = [one for one in api.items("/loads", LoadView) if one.server == server.id]
    running = {(one.model, one.version): one for one in api.get("/instances", _Instances).items}
    loads.sort(key=lambda one: (one.model, one.version))
    versions = [_version(one, running.get((one.model, one.version))) for one in loads]
    return ServerStatus(server.id, server.version, server.url, versions)


def _with_rates(now: ServerStatus, before: ServerStatus | None, elapsed_s: float) -> ServerStatus:
    """What was loaded anew counts from nought; nothing is known of a first look."""
    counts = {(one.model, one.version): one.requests for one in before.versions} if before else {}
    versions = []
    for one in now.versions:
        last = counts.get((one.model, one.version))
        rate = None if last is None else max(one.requests - last, 0) / elapsed_s
        versions.append(msgspec.structs.replace(one, per_second=rate))
    return msgspec.structs.replace(now, versions=versions)


def _version(load: LoadView, run: _Running | None) -> VersionStatus:
    health = load.health
    reason = "" if health.state == "READY" else " ".join(health.reason.split())
    counts = (run.instances, run.ready, run.succeeded, run.failed, run.pending) if run else (0,) * 5
    backend = run.backend if run else ""
    return VersionStatus(
        load.model, load.version, health.state, backend, *counts, reason, health.reason_code,
        health.since,
    )  # fmt: skip


def _draw(found: ServerStatus, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(to_plain(found), default=text_of) + "\n")
    else:
        clear = _CLEAR if sys.stdout.isatty() else ""
        sys.stdout.write(clear + _text(found) + "\n")
    sys.stdout.flush()


def _text(found: ServerStatus) -> str:
    """The table, and under it the whole reason of everything that does not serve."""
    ready = sum(one.state == "READY" for one in found.versions)
    head = f"Modelyard {found.software} at {found.url}, server {found.server[:8]}: "
    if not found.versions:
        return head + "no models; put one into the repository, see `modelyard init --help`"
    lines = [f"{head}{ready} of {len(found.versions)} versions ready", ""]
    rows = [_HEADER, *map(_cells, found.versions)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        cells[2] = painted(cells[2], row[2], sys.stdout)
        lines.append("  ".join(cells).rstrip())
    width = shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 1 << 20
    for one in found.versions:
        if one.reason:
            name = f"{one.model} {one.version or ''}".strip()
            text = plain(one.reason)
            if not text.startswith(f"model '{one.model}'"):
                text = f"{name}: {text}"
            text += f" (since {text_of(one.since)})"
            lines += ["", *textwrap.wrap(text, width, subsequent_indent="  ")]
    return "\n".join(lines)


def _cells(one: VersionStatus) -> tuple[str, ...]:
    instances = "-"
    if one.instances:
        short = one.ready_instances < one.instances
        instances = f"{one.ready_instances} of {one.instances}" if short else str(one.instances)
    rate = "" if one.per_second is None else f" ({one.per_second:.1f}/s)"
    counts = (f"{one.requests}{rate}", str(one.failed), str(one.waiting))
    return (
        plain(one.model),
        str(one.version or "-"),
        one.state,
        one.backend or "-",
        instances,
        *(counts if one.instances else ("-", "-", "-")),
    )


def logs(given: argparse.Namespace, api: ApiClient) -> Shown:
    """The last lines, and with --follow those to come, also over a restart of the server."""
    after: str | None = None
    broke_at: float | None = None
    while True:
        try:
            found = api.get(
                "/log", PrintedLog, after=after, limit=_MOST_LINES if after else given.lines
            )
            broke_at, after = None, found.next
            for line in found.items:
                _write(line, given.json)
        except ServerUnreachable:
            broke_at = broke_at or time.monotonic()
            if after is None or time.monotonic() - broke_at > PATIENCE_S:
                raise
        sys.stdout.flush()
        if not given.follow:
            return MessageOutput("", written=True)
        time.sleep(PAUSE_S)


def _write(line: PrintedLine, as_json: bool) -> None:
    if as_json:
        row: Mapping[str, Any] = to_plain(line)
        sys.stdout.write(json.dumps(row, default=text_of, ensure_ascii=False) + "\n")
    else:
        text = "\n".join(map(plain, line.text.splitlines()))
        sys.stdout.write(painted(text, line.level, sys.stdout) + "\n")


def seconds(text: str) -> float:
    """Of --watch."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0.1 <= found <= 3600:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds from 0.1 to 3600")
    return found


COMMANDS = (
    CliCommand(
        "status",
        "show what serves, what fails and why, and the traffic",
        status,
        (
            argument(
                "--watch",
                "Show it again every so many seconds, until interrupted. [2]",
                nargs="?",
                const=2.0,
                type=seconds,
            ),
        ),
    ),
    CliCommand(
        "logs",
        "print the last lines of the server's log, which it keeps in memory",
        logs,
        (
            argument("--follow", "Print what follows, until interrupted.", action="store_true"),
            argument("--lines", "The newest, at most 2000. [200]", type=whole, default=200),
        ),
    ),
)
