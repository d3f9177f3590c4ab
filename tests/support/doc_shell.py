"""Does what a page says, as its reader would: `with PageShell(folder) as shell: shell.run(block)`.

One bash runs a page's blocks in one folder, so that what a block sets or changes to holds for the
next one. A block that ends in a server (`modelyard serve`) is a terminal of its own: it is started
beside the others and awaited; the next such block with the same program takes its place, as after
Ctrl-C. A page's `git clone` is not run: `shell.clone()` lays the folder deploy/ down. Pages show
the usual ports; here they are replaced by free ones (and in what is printed by the usual ones).
"""

import ast
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

from support.doc_clone import clone_into
from support.doc_pages import ROOT, Block
from support.server import free_ports

BLOCK_SECS = 120.0
STOP_SECS = 30.0

SETTINGS = {8000: "HTTP", 8001: "GRPC", 8002: "METRICS", 8003: "ADMIN"}
USUAL_PORTS = (*SETTINGS, 3000, 8080, 8443, 9090)
_PORT = re.compile(
    rf"(?i)(?:(?<=:)|(?<=port[ =])|(?<=port: )|(?<=listen ))({'|'.join(map(str, USUAL_PORTS))})\b"
)
_SERVERS = re.compile(
    r"^(?:\w+=\S+ +)*(modelyard (?:serve|demo)|\./dev serve|tritonserver|prometheus|nginx)\b"
)
_PORT_OF = {"prometheus": 9090, "nginx": 8443}


class BlockFailed(AssertionError):
    """A block that does not do what its page says: where, what it printed, the server's log."""


class PageShell:
    """One page's shell, in an empty folder, or in a clone of this repository. Only blocks without a
    need are to be run."""

    def __init__(self, folder: Path, in_clone: bool = False) -> None:
        self._folder = folder / "page"
        self._notes = folder / "blocks"
        self._folder.mkdir()
        self._notes.mkdir()
        self._more = clone_into(self._folder) if in_clone else {}
        free = free_ports(len(USUAL_PORTS))
        self._ports = dict(zip(USUAL_PORTS, free, strict=True))
        self._servers: dict[str, int] = {}
        self._server_log = self._notes / "server.log"
        self._printed = ""

    def __enter__(self) -> "PageShell":
        self._done, write = os.pipe()
        self._bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=self._folder,
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[write],
            start_new_session=True,
        )
        os.close(write)
        self._say(f"exec 9>&{write} {write}>&-; set -e")
        return self

    def __exit__(self, *_: object) -> None:
        for program in list(self._servers):
            self._stop_server(program)
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self._bash.pid, number)
        self._bash.wait(STOP_SECS)
        if self._bash.stdin is not None:
            with suppress(BrokenPipeError):
                self._bash.stdin.close()
        os.close(self._done)

    def run(self, block: Block) -> None:
        """Write the block's file, run it, or compare it with what was printed last. Raises
        BlockFailed."""
        text = self._with_free_ports(block.text)
        if block.title:
            path = self._folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif block.is_output:
            self._compare(block)
        elif block.language == "python":
            script = self._write(block, text)
            self._execute(block, f"python - <{script}")
        elif _is_server(text):
            self._serve(block, text)
        else:
            self._execute(block, f". {self._write(block, text)}")

    def clone(self) -> None:
        """What `git clone` of this repository would bring that pages use: its folder deploy/."""
        for path in (ROOT / "deploy").rglob("*"):
            if path.is_file():
                copy = self._folder / "modelyard" / path.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_text(self._with_free_ports(path.read_text()))

    def _environment(self) -> dict[str, str]:
        home = self._notes / "home"
        home.mkdir()
        person = {"NAME": "Ada", "EMAIL": "ada@example.org"}
        kept = ("LANG", "LD_LIBRARY_PATH", "TMPDIR")
        return {
            **{name: os.environ[name] for name in kept if name in os.environ},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(home),
            "GIT_TERMINAL_PROMPT": "0",
            **self._more,
            **{f"GIT_{who}_{k}": v for who in ("AUTHOR", "COMMITTER") for k, v in person.items()},
            **{
                f"MODELYARD_{name}_PORT": str(self._ports[usual])
                for usual, name in SETTINGS.items()
            },
        }

    def _with_free_ports(self, text: str) -> str:
        return _PORT.sub(lambda found: str(self._ports[int(found[1])]), text)

    def _with_usual_ports(self, text: str) -> str:
        for usual, free in self._ports.items():
            text = re.sub(rf"\b{free}\b", str(usual), text)
        return text

    def _write(self, block: Block, text: str) -> Path:
        path = self._notes / str(block.line)
        path.write_text(text)
        return path

    def _say(self, line: str) -> None:
        assert self._bash.stdin is not None
        self._bash.stdin.write(line.encode() + b"\n")
        self._bash.stdin.flush()

    def _execute(self, block: Block, command: str) -> None:
        output = self._notes / f"{block.line}.out"
        self._say(f"{command} </dev/null >{output} 2>&1\necho done >&9")
        answer = self._answer()
        self._printed = self._with_usual_ports(output.read_text(errors="replace"))
        if answer is None:
            raise self._failed(block, f"takes longer than {BLOCK_SECS:g} s")
        if not answer:
            raise self._failed(block, "fails")

    def _answer(self) -> bytes | None:
        """What bash said of the last command; empty: it ended, None: nothing in time."""
        if select.select([self._done], [], [], BLOCK_SECS)[0]:
            return os.read(self._done, 100)
        return None

    def _serve(self, block: Block, text: str) -> None:
        """Start the block beside the shell and wait until its server is ready."""
        program = _program(text)
        self._stop_server(program)
        script = self._write(block, _replacing_the_shell(text))
        self._say(f". {script} </dev/null >{self._server_log} 2>&1 9>&- &\necho $! >&9")
        process = self._servers[program] = int(self._answer() or 0)
        until = time.monotonic() + BLOCK_SECS
        while not self._is_ready(text, program):
            if not _runs(process):
                raise self._failed(block, "starts a server that ends")
            if time.monotonic() > until:
                raise self._failed(block, f"starts a server not ready in {BLOCK_SECS:g} s")
            time.sleep(0.1)

    def _is_ready(self, text: str, program: str) -> bool:
        if program in _PORT_OF:
            return _listens(self._ports[_PORT_OF[program]])
        with suppress(OSError):
            address = f"http://127.0.0.1:{self._ports[8000]}/v2/health/ready"
            with urllib.request.urlopen(address, timeout=5):
                return "--allow-admin=false" in text or _listens(self._ports[8003])
        return False

    def _stop_server(self, program: str) -> None:
        process = self._servers.pop(program, None)
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
        until = time.monotonic() + STOP_SECS
        while _runs(process) and time.monotonic() < until:
            time.sleep(0.05)

    def _compare(self, block: Block) -> None:
        """Each line shown is printed, in this order; `…` stands for anything."""
        parts = (re.escape(" ".join(line.split())) for line in block.text.splitlines())
        wanted = r"[\s\S]*?".join(part.replace("…", ".*") for part in parts if part)
        printed = "\n".join(" ".join(line.split()) for line in self._printed.splitlines())
        if not re.search(wanted, printed):
            raise self._failed(block, "is not what the block before it prints")

    def _failed(self, block: Block, why: str) -> BlockFailed:
        log = self._server_log.read_text()[-4000:] if self._server_log.exists() else ""
        return BlockFailed(f"{block.where} {why}:\n{block.text}\n{self._printed}\n{log}")


def _is_server(text: str) -> bool:
    """Whether its last command is a server in the foreground."""
    last = _last_command(text)
    return bool(_SERVERS.match(last)) and not last.endswith("&") and "--help" not in last


def _program(text: str) -> str:
    """nginx or prometheus; "" for Modelyard however it is started."""
    found = _SERVERS.match(_last_command(text))
    return found[1] if found and found[1] in _PORT_OF else ""


def _last_command(text: str) -> str:
    commands = text.replace("\\\n", " ").strip().splitlines()
    return commands[-1].partition(" #")[0].rstrip()


def _replacing_the_shell(text: str) -> str:
    """The block with `exec` before the server, so that the job's process is the server's."""
    lines = text.replace("\\\n", " ").strip().splitlines()
    return "\n".join([*lines[:-1], f"exec env {lines[-1]}"]) + "\n"


def _runs(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _listens(port: int) -> bool:
    with socket.socket() as one:
        one.settimeout(5)
        return one.connect_ex(("127.0.0.1", port)) == 0


def lint(block: Block) -> str:
    """What is wrong with the text of a block that cannot be run here; empty if nothing is."""
    if block.language in ("sh", "bash"):
        done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True)
        return done.stderr
    try:
        if block.language == "python":
            ast.parse(block.text)
        elif block.language == "json":
            json.loads(block.text)
    except (SyntaxError, ValueError) as error:
        return str(error)
    return ""
