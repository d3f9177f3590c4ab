"""What runs as git's hook: tells the server about a push and repeats its answer to the pusher.

A script of its own, run by `python -I -S` beside the hooks; it imports nothing of ours. Exit
status 0 lets the push pass. When the server cannot be asked, pre-receive refuses the push and
post-receive, which comes too late for that, only says so.
"""

import json
import os
import socket
import sys

MOST_REQUEST_BYTES = 1024 * 1024
ANSWER_SECS = 900.0
"""Longest silence of the server's; its own deadline is shorter."""

MOST_ANSWER_BYTES = 1024 * 1024
_QUARANTINE = ("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_QUARANTINE_PATH")


def main(hook: str) -> int:
    failed = 1 if hook == "pre-receive" else 0
    path = os.environ.get("MODELYARD_HOOK_SOCKET", "")
    if not path:
        return _fail("this repository takes pushes through its server only", failed)
    line = json.dumps(_request(hook)).encode() + b"\n"
    if len(line) > MOST_REQUEST_BYTES:
        return _fail("the push moves too many refs at once; push fewer at a time", failed)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.settimeout(ANSWER_SECS)
            server.connect(path)
            server.sendall(line)
            status = _repeat(server)
    except (OSError, ValueError) as error:
        return _fail(f"the server cannot be asked about this push ({error}); try again", failed)
    if status is None:
        return _fail("the server stopped while it checked this push; try again", failed)
    return status


def _request(hook: str) -> dict[str, object]:
    count = os.environ.get("GIT_PUSH_OPTION_COUNT", "0")
    return {
        "hook": hook,
        "key": os.environ.get("MODELYARD_PUSH_KEY", ""),
        "updates": [line.rstrip("\n").split(" ", 2) for line in sys.stdin],
        "quarantine": {name: os.environ[name] for name in _QUARANTINE if name in os.environ},
        "options": [
            os.environ.get(f"GIT_PUSH_OPTION_{number}", "") for number in range(int(count))
        ],
    }


def _repeat(server: socket.socket) -> int | None:
    """Say what the server says until it gives the exit status; None when it ends without one."""
    with server.makefile("rb") as answer:
        while line := answer.readline(MOST_ANSWER_BYTES):
            message = json.loads(line)
            if "exit" in message:
                return int(message["exit"])
            print(message["say"], file=sys.stderr, flush=True)  # noqa: T201 - git passes it on
    return None


def _fail(message: str, status: int) -> int:
    print(message, file=sys.stderr, flush=True)  # noqa: T201 - git passes it on
    return status


if __name__ == "__main__":
    for stream in (sys.stdin, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
    sys.exit(main(sys.argv[1]))
