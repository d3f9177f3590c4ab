"""What a confined process finds in its environment; a table of paths, nothing is confined."""

from pathlib import Path

import pytest

from repository.sandbox.confinement import Confinement
from repository.sandbox.policy import ConfinedWorker, Kernel, SandboxEnvironment
from repository.sandbox.scratch import ScratchFolders


def environment(
    tmp_path: Path, inherited: dict[str, str], caches: tuple[str, ...] = ()
) -> dict[str, str]:
    """What a worker gets that may also write `tmp_path/allowed`."""
    around = SandboxEnvironment("default", (), (), (), (), (), (str(tmp_path / "allowed"),))
    tenant = ConfinedWorker("/m", "/m/1", "", caches=caches)
    confinement = Confinement(Kernel(6, True), around, tenant, ScratchFolders(tmp_path))
    return confinement.environment(inherited, Path("/scratch"))


@pytest.mark.parametrize(
    ("inherited", "found"),
    [
        ({}, "/scratch/inductor"),
        ({"TORCHINDUCTOR_CACHE_DIR": "/tmp/torchinductor_root"}, "/scratch/inductor"),
        ({"TORCHINDUCTOR_CACHE_DIR": "{tmp}/allowed/kernels"}, "{tmp}/allowed/kernels"),
        ({"TORCHINDUCTOR_CACHE_DIR": "{tmp}/allowed-not"}, "/scratch/inductor"),
    ],
)
def test_a_cache_of_compiled_code_is_where_the_worker_may_write(
    tmp_path: Path, inherited: dict[str, str], found: str
) -> None:
    inherited = {name: path.format(tmp=tmp_path) for name, path in inherited.items()}
    given = environment(tmp_path, inherited)
    assert given["TORCHINDUCTOR_CACHE_DIR"] == found.format(tmp=tmp_path)
    assert given["TMPDIR"] == "/scratch"


def test_a_sandbox_says_in_words_whether_the_network_may_be_used(tmp_path: Path) -> None:
    def words(mode: str, network: bool) -> str:
        around = SandboxEnvironment(mode, (), (), (), (), (), ())
        tenant = ConfinedWorker("/m", "/m/1", "", network=network)
        return Confinement(Kernel(6, True), around, tenant, ScratchFolders(tmp_path)).words

    assert words("default", True) == "default, may use the network"
    assert words("strict", False) == "strict, no network"
    assert words("off", True) == "off"


def test_an_engine_keeps_its_caches_and_gets_no_others(tmp_path: Path) -> None:
    inherited = {"TRITON_CACHE_DIR": "/kernels/a", "NUMBA_CACHE_DIR": "/elsewhere"}
    given = environment(tmp_path, inherited, caches=("/kernels",))
    assert given["TRITON_CACHE_DIR"] == "/kernels/a"
    assert given["NUMBA_CACHE_DIR"] == "/scratch/numba"
    assert "TORCHINDUCTOR_CACHE_DIR" not in given
    assert "XDG_CACHE_HOME" not in given
