"""One worker's sandbox as its parent sees it: made ready for each of its processes, and told of."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from repository.sandbox.enter import variables
from repository.sandbox.policy import (
    ConfinedWorker,
    Kernel,
    SandboxEnvironment,
    is_secret,
    sandbox_of,
)
from repository.sandbox.scratch import ScratchFolders

_COMPILED = {
    "TRITON_CACHE_DIR": "triton",
    "NUMBA_CACHE_DIR": "numba",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
}
"""Where libraries keep what they compiled, else in the hidden home. PyTorch names its folder in the
environment of every process that has compiled, and so of our children."""


class Confinement(NamedTuple):
    """Where `around.mode` is "off", nothing is confined, and the bytes alone hold.

    `tenant` has no scratch yet: each process gets one of its own. `keep`: names of environment
    variables that are handed on although they may hold a secret. `memory_bytes`: beyond it a worker
    is killed; 0 for no limit. `output_bytes`: what it may give for one batch or in one response,
    counted as the server keeps it; 0 for no limit."""

    kernel: Kernel
    around: SandboxEnvironment
    tenant: ConfinedWorker
    scratch: ScratchFolders
    keep: frozenset[str] = frozenset()
    memory_bytes: int = 0
    output_bytes: int = 0

    def environment(self, inherited: Mapping[str, str], scratch: Path) -> dict[str, str]:
        """A process's: without secrets, its temporary files and caches in its scratch folder."""
        kept = {
            name: value
            for name, value in inherited.items()
            if name in self.keep or not is_secret(name, value)
        }
        if not self.tenant.caches:
            kept = {"XDG_CACHE_HOME": str(scratch / "cache")} | dict.fromkeys(_COMPILED, "") | kept
        for variable, folder in _COMPILED.items():
            if variable in kept and not self._is_writable(kept[variable]):
                kept[variable] = str(scratch / folder)
        kept |= dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))
        tenant = self.tenant._replace(scratch=str(scratch))
        return kept | variables(sandbox_of(self.kernel, self.around, tenant))

    def _is_writable(self, folder: str) -> bool:
        real = Path(os.path.realpath(folder))
        places = (*self.around.allow_write, *self.tenant.caches)
        return bool(folder) and any(real.is_relative_to(place) for place in places)

    @property
    def is_off(self) -> bool:
        return self.around.mode == "off"

    @property
    def words(self) -> str:
        """For people: "default, no network", "strict, may use the network", "off"."""
        if self.is_off:
            return "off"
        return f"{self.around.mode}, {'may use the' if self.tenant.network else 'no'} network"
