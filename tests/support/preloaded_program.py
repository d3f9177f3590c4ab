"""The program behind `support.preloaded`: `python preloaded_program.py DESCRIPTOR` of its channel.

It imports what a server imports, forks for each order, and reports which process has started and
which has ended. It ends with the process of tests.
"""

import gc
import json
import os
import selectors
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module, reload
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> int:
    """Returns in each process that was forked, with the status it is to exit with."""
    sys.path[0] = str(ROOT)
    for name in ("server.cli.main", "server.app", "server.gateway", "server.cli.commands.client"):
        import_module(name)
    gc.collect()
    gc.freeze()  # a collection would copy every page that holds an object
    order = _serve(socket.socket(fileno=int(sys.argv[1])))
    return 0 if order is None else _run(order)


def _serve(channel: socket.socket) -> dict[str, Any] | None:
    """An order, in the process that was forked for it; None once nobody gives any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to all of the group
    woken, wake = socket.socketpair()
    woken.setblocking(False)
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with selectors.DefaultSelector() as selector:
        for one in (channel, woken):
            selector.register(one, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if woken in ready:
                with suppress(BlockingIOError):
                    woken.recv(1024)
                _report(channel)
            if channel not in ready:
                continue
            message, descriptors, _, _ = socket.recv_fds(channel, 16, 4)
            if not message:
                return None
            if pid := os.fork():
                for descriptor in descriptors:
                    os.close(descriptor)
                channel.send(json.dumps(["started", pid, 0]).encode())
                continue
            return _become(channel, woken, wake, descriptors)


def _report(channel: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        channel.send(json.dumps(["ended", pid, os.waitstatus_to_exitcode(status)]).encode())


def _become(
    channel: socket.socket, woken: socket.socket, wake: socket.socket, descriptors: list[int]
) -> dict[str, Any]:
    """What a new process has: streams of its own, the usual signals, nothing of ours open."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for one in (channel, woken, wake):
        one.close()
    described, *streams = descriptors
    with os.fdopen(described) as text:
        order: dict[str, Any] = json.load(text)
    for target, descriptor in enumerate(streams):
        os.dup2(descriptor, target)
    for descriptor in streams:
        os.close(descriptor)
    return order


def _run(order: dict[str, Any]) -> int:
    if order["new_session"]:
        os.setsid()
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    # As `python -m` has it.
    added = order["environment"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [order["folder"], *filter(None, added)]
    sys.argv = [str(ROOT / "server" / "cli" / "__main__.py"), *order["arguments"]]
    _draw_again()
    program = import_module("server.cli.main")
    return int(program.main())


def _draw_again() -> None:
    """What is drawn when a process starts is not to be the same in all of ours: ids of requests."""
    ids: Any = import_module("server.request_ids")
    status: Any = import_module("server.http2.calls.status")
    number, drawn = ids.next_number, ids.PREFIX.encode()
    reload(ids)
    ids.next_number = number  # who imported it before and who does later count together
    status._OURS = [head.replace(drawn, ids.PREFIX.encode()) for head in status._OURS]


if __name__ == "__main__":
    sys.exit(main())
