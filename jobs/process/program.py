"""The command of a job's process, and its environment variables."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from jobs.process.limits import ProcessLimits
from repository.sandbox.enter import variables
from repository.sandbox.policy import Sandbox, is_secret

ROOT = Path(__file__).resolve().parents[2]
TOOLS = "jobs.tools.__main__"

# `-P`: the current folder is the job's. The bounds first: nothing of the tool is imported before.
_START = (
    "import sys; roots = sys.argv[2].split(':'); sys.path[:0] = roots; "
    "from jobs.process.bounds import bound; bound(int(sys.argv[1]), sys.argv[3]); "
    "from repository.sandbox.enter import enter_from_environment; enter_from_environment(); "
    "sys.argv[:] = ['job', *sys.argv[4:6]]; "
    "from {module} import main; sys.exit(main())"
)
_THREADS = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"),
    *("VECLIB_MAXIMUM_THREADS", "RAYON_NUM_THREADS", "OMP_THREAD_LIMIT"),
)
_INHERITED = (
    *("PATH", "LANG", "LC_", "TZ", "LD_", "FONTCONFIG_", "SSL_CERT_", "MALLOC_", "GLIBC_TUNABLES"),
    *("CUDA", "NVIDIA_", "TRITON_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "DNNL_"),
)
"""Beginnings of the names of variables that a job's process gets: how the machine's libraries are
found and told to compute. None is known to hold a secret, as those of tools of operators do."""
LEADER = "leader"
"""The file beside the task with the token (`repository.files.owner`) of the job's first process: it
leads the session of all that the job starts."""
SERVER_PYTHON = "MODELYARD_SERVER_PYTHON"
"""The interpreter that the server's packages are installed for, for a tool that starts a server."""
_SETTINGS = {
    "PYTHONUNBUFFERED": "1",
    "PYTHONFAULTHANDLER": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "OLIVE_DISABLE_TELEMETRY": "1",
    "CUDA_VISIBLE_DEVICES": "",
}
"""A job has no network; libraries that would ask for something or report something try in vain."""


class JobProgram(NamedTuple):
    """One job's process. `main()` of `module` gets `task_file` and a descriptor in `sys.argv`.

    python: the interpreter of its tool environment. task_file: what it is asked, as JSON.
    output, scratch: the folders that it writes to. sandbox: None for none. title: as the process
    table shows it. roots: folders from which our own modules are imported.
    """

    python: str
    task_file: Path
    output: Path
    scratch: Path
    sandbox: Sandbox | None
    title: str
    module: str = TOOLS
    roots: tuple[str, ...] = (str(ROOT),)


def command(program: JobProgram, limits: ProcessLimits, descriptor: int) -> list[str]:
    """The command line; the process that runs it is to be this one's child."""
    given = {
        "memory_bytes": limits.memory_bytes,
        "cpu_secs": limits.cpu_secs,
        "file_bytes": max(limits.disk_bytes, limits.output_bytes),
        "niceness": limits.niceness,
    }
    return [
        *(program.python, "-P", "-B", "-c", _START.format(module=program.module)),
        *(str(os.getpid()), ":".join(program.roots), json.dumps(given)),
        *(str(program.task_file), str(descriptor), program.title),
    ]


def environment(
    program: JobProgram, limits: ProcessLimits, inherited: Mapping[str, str]
) -> dict[str, str]:
    """All its variables: few of the worker's, any of which may hold a secret; every cache and
    temporary file in its scratch folder."""
    kept = {
        name: value
        for name, value in inherited.items()
        if name.startswith(_INHERITED) and not is_secret(name, value)
    }
    scratch = str(program.scratch)
    kept |= dict.fromkeys(("HOME", "TMPDIR", "TEMP", "TMP", "XDG_CACHE_HOME"), scratch)
    kept |= dict.fromkeys(_THREADS, str(limits.threads))
    own = {SERVER_PYTHON: own_python()}
    return kept | _SETTINGS | own | variables(program.sandbox)


def own_python() -> str:
    """The interpreter that this process runs on."""
    return sys.executable
