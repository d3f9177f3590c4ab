"""Decide what a confined process may do, and which parts of that this kernel can enforce. Pure.

`repository.sandbox.enter` does what is decided here, in the process itself.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any, NamedTuple


class SandboxFeature(StrEnum):
    """One thing that a kernel can enforce, in the words of the report."""

    FILES = "files"
    TCP = "TCP"
    SIGNALS = "signals and abstract sockets"
    CALLS = "system calls"
    PRIVILEGES = "privileges"
    LIMITS = "limits"


_SINCE_ABI = {SandboxFeature.FILES: 1, SandboxFeature.TCP: 4, SandboxFeature.SIGNALS: 6}
"""Landlock's ABI that has the part; https://docs.kernel.org/userspace-api/landlock.html."""

_WITHOUT = {
    SandboxFeature.FILES: "files are not confined (no Landlock)",
    SandboxFeature.TCP: "TCP is not confined by Landlock, whose ABI is below 4",
    SandboxFeature.SIGNALS: "signals and abstract sockets are not confined "
    "(Landlock's ABI is below 6)",
    SandboxFeature.CALLS: "system calls are not filtered (no seccomp for this machine)",
    SandboxFeature.PRIVILEGES: "privileges cannot be dropped",
    SandboxFeature.LIMITS: "limits are not set",
}


class Kernel(NamedTuple):
    """What the running kernel can do: Landlock's ABI (0: none), seccomp filters on a processor that
    the filter knows, and whether it is Linux at all."""

    landlock_abi: int
    seccomp: bool
    linux: bool = True


class Sandbox(NamedTuple):
    """What one process may do; complete, and plain enough for JSON.

    profile: "default", "strict" or "parser", for reports.
    landlock_abi: of the kernel that it was decided for; 0 leaves files alone.
    seccomp: whether system calls are filtered.
    everywhere: whether every path may be read that `hidden` does not cover.
    hidden: paths that are not read, whatever lies in them, but for `readable` ones inside.
    readable: paths that are read and executed, but for `hidden` ones inside.
    writable: folders that are written too.
    network: whether sockets of the internet may be opened.
    unix_sockets: whether Unix sockets may be opened; pairs always may.
    execute: whether other programs may be started.
    fork: whether it may start processes at all.
    leave_group: whether it may leave its process group, and so survive the group's end.
    shared_memory: whether it may write to /dev/shm, where files stay when it has ended.
    names_threads: whether it may write what /proc has of its own threads: their names, and with
    them its place among those that the kernel ends when memory runs out.
    attributes: whether it may change modes, owners, times and extended attributes of files, which
        Landlock does not look at: else of hidden ones too, where they belong to the same user.
    """

    profile: str
    landlock_abi: int
    seccomp: bool
    everywhere: bool
    hidden: tuple[str, ...]
    readable: tuple[str, ...]
    writable: tuple[str, ...]
    network: bool
    unix_sockets: bool
    execute: bool
    fork: bool = True
    leave_group: bool = True
    shared_memory: bool = True
    names_threads: bool = False
    attributes: bool = True


class SandboxEnvironment(NamedTuple):
    """Of one server, the same for all of its workers. All paths are absolute and real.

    mode: "strict", "default" or "off".
    secrets: the state folder, sockets, the database, private keys, and the user's home.
    repositories: folders of models, with the targets of their links.
    runtime: the interpreter, its libraries and this program; read in every profile.
    system: what programs need of the machine under `strict`: libraries, certificates, fonts.
    allow_read, allow_write: what the operator allows besides.
    """

    mode: str
    secrets: tuple[str, ...]
    repositories: tuple[str, ...]
    runtime: tuple[str, ...]
    system: tuple[str, ...]
    allow_read: tuple[str, ...] = ()
    allow_write: tuple[str, ...] = ()


class ConfinedWorker(NamedTuple):
    """What is to be confined: one worker.

    model, version: its model's folder and its version's own.
    linked: real paths of files that links in its folder lead to.
    scratch: a folder of its own, for temporary files.
    network: whether it may open connections.
    caches: folders that it may read and write because it is our own code (compiled kernels).
    compiles: it starts compilers, under `strict` too.
    environment: folders of the Python that it becomes, which takes starting one program.
    gpu: whether it may use a GPU, for which CUDA names threads.
    """

    model: str
    version: str
    scratch: str
    linked: tuple[str, ...] = ()
    network: bool = False
    caches: tuple[str, ...] = ()
    compiles: bool = False
    environment: tuple[str, ...] = ()
    gpu: bool = False


def sandbox_of(kernel: Kernel, around: SandboxEnvironment, tenant: ConfinedWorker) -> Sandbox:
    """A worker's; `around.mode` is "default" or "strict"."""
    strict = around.mode == "strict"
    own = (tenant.version, *tenant.linked) if strict else (tenant.model, tenant.version)
    writable = (tenant.scratch, *tenant.caches, *around.allow_write)
    system = around.system if strict else ()
    return Sandbox(
        profile=around.mode,
        landlock_abi=kernel.landlock_abi,
        seccomp=kernel.seccomp,
        everywhere=not strict,
        hidden=(*around.secrets, *around.repositories),
        readable=(
            *own,
            *tenant.linked,
            *tenant.environment,
            *around.runtime,
            *system,
            *around.allow_read,
        ),
        writable=writable,
        network=tenant.network,
        unix_sockets=not strict,
        execute=not strict or tenant.compiles or bool(tenant.environment),
        names_threads=tenant.gpu,
        attributes=False,
    )


def parser_sandbox(
    kernel: Kernel, hidden: Iterable[str], readable: Iterable[str], everywhere: bool
) -> Sandbox:
    """Of a process that parses hostile input: it reads, and answers through its pipe."""
    return Sandbox(
        profile="parser",
        landlock_abi=kernel.landlock_abi,
        seccomp=kernel.seccomp,
        everywhere=everywhere,
        hidden=tuple(hidden),
        readable=tuple(readable),
        writable=(),
        network=False,
        unix_sockets=False,
        execute=False,
        fork=False,
        attributes=False,
    )


def parts_of(kernel: Kernel) -> tuple[SandboxFeature, ...]:
    """Those that this kernel enforces."""
    if not kernel.linux:
        return ()
    files = [part for part, abi in _SINCE_ABI.items() if kernel.landlock_abi >= abi]
    calls = [SandboxFeature.CALLS] if kernel.seccomp else []
    return (*files, *calls, SandboxFeature.PRIVILEGES, SandboxFeature.LIMITS)


def report(mode: str, kernel: Kernel) -> str:
    """One line for the log: what is in force, and what this kernel lacks."""
    if mode == "off":
        return "the worker sandbox is off: models may do everything this user may"
    active = parts_of(kernel)
    missing = [_WITHOUT[part] for part in SandboxFeature if part not in active]
    if not active:
        return f"the worker sandbox ({mode}) is not available on this system, which is not Linux"
    line = f"the worker sandbox ({mode}) confines {', '.join(active)}"
    return f"{line}; missing: {'; '.join(missing)}" if missing else line


def asks_for_network(parameters: Any) -> bool:
    """Whether a model's config has the parameter `network` with the value "true"."""
    return "network" in parameters and parameters["network"].string_value.lower() == "true"


Entries = Callable[[str], Iterable[tuple[str, bool]]]
"""Names in a folder, each with whether it is a link; nothing for what cannot be listed."""


def visible(roots: Iterable[str], hidden: Collection[str], entries: Entries) -> Iterator[str]:
    """The paths to allow so that all of `roots` can be read, and nothing of `hidden` below them.

    Landlock knows no "except": instead of a folder with something hidden below it, its other
    entries are allowed. Links are left out: a rule for one would be for what it leads to, which has
    its own. What is created later beside something hidden stays hidden.
    """
    ancestors = {str(above) for path in hidden for above in PurePosixPath(path).parents}
    for root in roots:
        yield from _visible(root, frozenset(hidden) - {root}, ancestors, entries)


def _visible(
    path: str, hidden: Collection[str], ancestors: Collection[str], entries: Entries
) -> Iterator[str]:
    if path in hidden:
        return
    if path not in ancestors:
        yield path
        return
    for name, is_link in entries(path):
        if not is_link:
            yield from _visible(f"{path.rstrip('/')}/{name}", hidden, ancestors, entries)


_SECRET_WORDS = frozenset(
    {
        *("TOKEN", "TOKENS", "SECRET", "SECRETS", "CREDENTIAL", "CREDENTIALS", "APIKEY"),
        *("PASSWORD", "PASSWD", "PASS", "PASSPHRASE", "PGPASSFILE", "PGSERVICEFILE", "KUBECONFIG"),
    }
)
_SECRET_PAIRS = ("API_KEY", "ACCESS_KEY", "PRIVATE_KEY", "DATABASE_URL", "SSH_AUTH_SOCK")
_SECRET_ENDS = ("PASSWORD", "PASSWD", "TOKEN")
"""Of one word with what it belongs to, as in PGPASSWORD."""
_NO_SECRETS = ("", "git")
"""What may stand before the @ of a URL: any other text, as of a Sentry DSN, may be a key."""
_SECRET_PREFIXES = ("MODELYARD_", "AWS_", "GOOGLE_", "GCP_", "AZURE_", "DOCKER_")


def is_secret(variable: str, value: str) -> bool:
    """Whether an environment variable may hold a secret of the server's: by its name, or because
    its value is a URL with a user or password in it (a proxy's is none of the server's)."""
    name = variable.upper()
    if name.startswith(_SECRET_PREFIXES) or any(pair in name for pair in _SECRET_PAIRS):
        return True
    if not _SECRET_WORDS.isdisjoint(name.split("_")) or name.endswith(_SECRET_ENDS):
        return True
    user = value.partition("://")[2].partition("/")[0].rpartition("@")[0]
    return user not in _NO_SECRETS and not name.endswith("_PROXY")
