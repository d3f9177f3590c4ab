"""Compile the kernels with the machine's g++, once; later starts load what was compiled.

The library lies in a cache folder of the user's own, under a name made of the sources, the flags,
the compiler and torch's version: a change of any of them compiles anew.
"""

import ctypes
import os
import stat
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from backends.llm.errors import NoKernels


@dataclass(frozen=True, slots=True)
class InstructionSet:
    """A set of instructions that there are kernels for, in the folder of its name.

    `needed`: what the CPU must have for it, in Linux's words. `base`: the set whose sources stand
    in for those it has not itself.
    """

    name: str
    needed: frozenset[str]
    base: str = ""

    def sources(self) -> list[Path]:
        """In the order of their names."""
        folders = [_SOURCES / name for name in (self.base, self.name) if name]
        found = {source.name: source for folder in folders for source in folder.iterdir()}
        return [found[name] for name in sorted(found)]


_SOURCES = Path(__file__).parent
_AVX512 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16", "avx512_vnni"})
_TILES = frozenset({"amx_tile", "amx_bf16", "amx_int8"})
SETS = (
    InstructionSet("amx", _AVX512 | _TILES, base="avx512"),
    InstructionSet("avx512", _AVX512),
    InstructionSet("avx2", frozenset({"avx2", "fma"})),
)
"""Best first."""
FLAGS = (
    "-O3", "-march=native", "-std=c++17", "-fno-math-errno", "-fno-trapping-math", "-fPIC",
    "-shared", "-fopenmp",
)  # fmt: skip
COMPILE_TIMEOUT_S = 120.0
_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA = 158, 0x1023, 18


def compiled_library() -> Path:
    """The shared library for the best instructions that CPU and compiler know, compiled if it was
    not yet.

    Raises NoKernels when this CPU lacks the instructions, there is no compiler, or it fails.
    """
    errors = []
    for one in instruction_sets():
        try:
            return _library_for(one)
        except NoKernels as error:
            errors.append(error)
    raise errors[0]


def _library_for(instructions: InstructionSet) -> Path:
    """Raises NoKernels."""
    sources = [*sorted(_SOURCES.glob("*.cpp")), *instructions.sources()]
    library = _cache_folder() / f"kernels-{_fingerprint(sources)}.so"
    if not library.is_file():
        _compile(sources, library)
    _refuse_strangers(library)
    return library


def instruction_sets() -> list[InstructionSet]:
    """Those this CPU has that there are kernels for, best first. Raises NoKernels for none."""
    found = [one for one in SETS if one.needed <= cpu_flags()]
    if not found:
        missing = ", ".join(sorted(SETS[-1].needed - cpu_flags()))
        raise NoKernels(f"this CPU lacks {missing}")
    return found


@cache
def cpu_flags() -> frozenset[str]:
    """What this CPU can do for us, in Linux's words; empty on other systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return usable(frozenset(flags.partition(":")[2].split()), _are_tiles_granted)


def usable(flags: frozenset[str], are_tiles_granted: Callable[[], bool]) -> frozenset[str]:
    """Without AMX where it is refused."""
    return flags if "amx_tile" not in flags or are_tiles_granted() else flags - _TILES


def _are_tiles_granted() -> bool:
    """Linux has a process ask before it uses AMX (arch_prctl(2)); a sandbox may refuse."""
    refused = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA)
    return not refused


def _compile(sources: list[Path], library: Path) -> None:
    with TemporaryDirectory(dir=library.parent) as folder:
        made = Path(folder) / library.name
        compiled = [str(source) for source in sources if source.suffix == ".cpp"]
        command = ["g++", *FLAGS, *compiled, *_openmp(), "-o", str(made)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False
            )
        except FileNotFoundError:
            raise NoKernels(
                "there is no g++ on PATH; install it (apt: g++) for the compiled kernels"
            ) from None
        except OSError as error:  # a sandbox refuses
            raise NoKernels(f"g++ cannot be started: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise NoKernels(f"g++ took longer than {COMPILE_TIMEOUT_S:.0f} s") from None
        if done.returncode:
            raise NoKernels(f"g++ failed: {done.stderr.strip()[:500]}")
        # Several processes may compile at once; whoever comes last replaces an equal file.
        made.replace(library)


def _openmp() -> list[str]:
    """torch's own OpenMP library, so that both use one pool of threads."""
    found = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*"))
    return [str(found[0]), f"-Wl,-rpath,{found[0].parent}"] if found else []


def _fingerprint(sources: list[Path]) -> str:
    digest = sha256()
    for source in sources:
        digest.update(source.read_bytes())
    about = [*FLAGS, torch.__version__, str(Path(torch.__file__).parent), *sorted(cpu_flags())]
    digest.update("\n".join([*about, _compiler()]).encode())
    return digest.hexdigest()[:16]


@cache
def _compiler() -> str:
    try:
        completed = subprocess.run(
            ["g++", "-dumpfullversion"], capture_output=True, text=True, timeout=10.0, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return completed.stdout.strip()


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "modelyard"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise NoKernels(f"the cache folder {folder} cannot be created: {error.strerror}") from None
    return folder


def _refuse_strangers(library: Path) -> None:
    """Only what we, or root, made and others cannot change is loaded."""
    for path in (library, library.parent):
        about = path.stat()
        if about.st_uid not in (os.geteuid(), 0) or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise NoKernels(f"{path} belongs to another user or can be changed by others")
