"""The control API against what Schemathesis makes of its own description, in one process.

`python -m benchmarks.fuzz.control_api FOLDER COUNT SEED [--cover]`: libFuzzer's counterpart for a
target whose inputs come from a schema. Prints the same closing figures.
"""

import argparse
import contextlib
import copy
import json
import resource
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.core.errors import InvalidSchema
from schemathesis.core.result import Err, Ok
from schemathesis.schemas import APIOperation

from benchmarks.fuzz.growth import Growth
from benchmarks.fuzz.http1 import request
from benchmarks.fuzz.lines import Lines
from benchmarks.fuzz.servers import InProcess, control_process, tell
from benchmarks.fuzz.target import Wrong
from control.api.openapi import document
from server import VERSION

Operation = APIOperation[Any, Any, Any, Any]
PACKAGES = ("control.api.resources", "control.api", "control.access", "control")
PATIENCE_S = 0.05
THINGS = (
    ("POST", "/users", {"name": "ada", "role": "operator", "password": "a long password"}),
    ("POST", "/repositories", {"name": "vision"}),
    ("POST", "/tokens", {"name": "laptop", "user": "ada", "scopes": ["push:vision:*"]}),
)
EXISTING: dict[str, list[Any]] = {"user": ["ada"], "repository": ["vision"], "version": [1, 2]}


def main() -> int:
    """Send the cases; 1 when an answer was wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz.control_api")
    parser.add_argument("folder", type=Path)
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("--cover", action="store_true", help="report the lines that were reached")
    given_ = parser.parse_args()
    lines = Lines(PACKAGES) if given_.cover else contextlib.nullcontext()
    began = time.monotonic()
    with control_process() as (server, path), lines as seen:
        for method, where, body in THINGS:
            _ask(server, path, method, f"/api/v1{where}", json.dumps(body).encode())
        wrong = _send(server, path, given_)
    seconds = time.monotonic() - began
    for one in wrong:
        print(f"WRONG {one}")
    print(f"stat::number_of_executed_units: {given_.count}")
    print(f"stat::average_exec_per_sec: {given_.count / seconds:.0f}")
    print(f"stat::peak_rss_mb: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}")
    if seen is not None:
        reached, all_lines = seen.figures()
        print(f"lines {reached} {all_lines}")
    return 1 if wrong else 0


def _send(server: InProcess, path: Path, given_: argparse.Namespace) -> list[str]:
    wrong: list[str] = []
    growth = Growth(given_.folder / "growth")

    @seed(given_.seed)
    @settings(
        max_examples=given_.count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(_cases())
    def run(case: Case[Any]) -> None:
        growth.one()
        if problem := _problem(server, path, case):
            wrong.append(problem)

    run()
    growth.close()
    return wrong


def _problem(server: InProcess, path: Path, case: Case[Any]) -> str:
    """What is wrong with the answer, "" for nothing."""
    query = urlencode(case.query or {}, doseq=True) if isinstance(case.query, dict) else ""
    where = case.formatted_path + (f"?{query}" if query else "")
    if not where.isascii() or any(character in where for character in " \r\n"):
        return ""  # no request line
    body = (
        b""
        if case.body.__class__.__name__ == "NotSet"
        else json.dumps(case.body, default=str).encode()
    )
    try:
        answer = _ask(server, path, case.method, where, body)
    except Wrong as fault:
        return f"{case.method} {where} {body[:300]!r}: {fault}"
    allowed = case.operation.definition.raw["responses"]
    status = answer[9:12].decode()
    if answer and ((status >= "500" and status not in allowed) or b"This is a bug" in answer):
        return f"{case.method} {where} {body[:300]!r}: {answer[:300]!r}"
    return ""


def _ask(server: InProcess, path: Path, method: str, where: str, body: bytes) -> bytes:
    header = {"Content-Type": "application/json", "Connection": "close"}
    return server.run(tell(path, request(method, where, body, header), PATIENCE_S))


def _cases() -> st.SearchStrategy[Case[Any]]:
    """Any operation of the description, as it is and with names that exist."""
    whole = document(VERSION)
    schemas = [schemathesis.openapi.from_dict(one) for one in (whole, _aimed(whole))]
    for schema in schemas:
        schema.config.update(base_url="http://localhost/api/v1")
    found = [_valid(one) for schema in schemas for one in schema.get_all_operations()]
    kept = [one for one in found if "/events" not in one.path]  # a stream that never ends
    return st.one_of(*(one.as_strategy(mode) for one in kept for mode in GenerationMode))


def _valid(
    found: Ok[Operation] | Err[InvalidSchema],
) -> Operation:
    """Raises InvalidSchema for what the description says wrongly."""
    if isinstance(found, Err):
        raise found.err()
    return found.ok()


def _aimed(whole: dict[str, Any]) -> dict[str, Any]:
    found = copy.deepcopy(whole)
    for verbs in found["paths"].values():
        for operation in verbs.values():
            for row in operation["parameters"]:
                if row["in"] == "path" and row["name"] in EXISTING:
                    row["schema"] = {"enum": EXISTING[row["name"]]}
    return found


if __name__ == "__main__":
    raise SystemExit(main())
