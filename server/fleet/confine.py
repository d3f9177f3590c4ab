"""What workers may do on this server: gathered once from settings and machine, then per version.

`repository.sandbox.policy` decides; here are the paths that it decides about.
"""

import logging
import os
import site
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from backends.process.interpreter import Interpreter
from repository.model import ModelVersion
from repository.sandbox.confinement import Confinement
from repository.sandbox.enter import kernel
from repository.sandbox.orphans import adopt_and_end
from repository.sandbox.policy import (
    ConfinedWorker,
    Sandbox,
    SandboxEnvironment,
    asks_for_network,
    parser_sandbox,
    report,
)
from repository.sandbox.scratch import ScratchFolders
from server.fleet.checks.check import Checker, ConfigCompletion
from server.fleet.placement import may_use_gpu
from server.fleet.version_origin import is_operators
from server.settings.table import Settings

_SYSTEM = (
    *("/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt", "/nix/store", "/gnu/store"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ssl", "/etc/pki"),
    *("/etc/ca-certificates", "/etc/fonts", "/etc/localtime", "/etc/timezone", "/etc/mime.types"),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/resolv.conf"),
    *("/etc/host.conf", "/etc/gai.conf", "/etc/services", "/etc/protocols", "/etc/alternatives"),
    *("/etc/OpenCL", "/etc/vulkan", "/etc/libnl", "/sys", "/run/systemd/resolve"),
)
"""What programs need of a machine: libraries, certificates, fonts, name resolution."""

_CACHES = (
    *("HF_HOME", "HF_HUB_CACHE", "TRANSFORMERS_CACHE", "SENTENCE_TRANSFORMERS_HOME"),
    *("TORCH_HOME", "XDG_CACHE_HOME", "NLTK_DATA", "TIKTOKEN_CACHE_DIR"),
)
"""Variables that configure a cache; what they name may be read, but for tokens in it."""

_AUTHORITIES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")

_MOST_LINKS = 10_000
_ROOT = Path(__file__).resolve().parents[2]
_log = logging.getLogger(__name__)


class Confiner:
    """Says what each version's workers may do; belongs to one gateway. Any thread may ask."""

    def __init__(self, settings: Settings, sockets: Path, gpus: tuple[int, ...] = ()) -> None:
        """`sockets`: the folder of the control process's. `gpus`: what this machine has."""
        self._settings = settings
        self._gpus = gpus
        self._kernel = kernel()
        self._around = surroundings(settings, sockets)
        self._scratch = ScratchFolders(settings.state_dir.absolute() / "scratch")
        self._keep = frozenset(settings.worker_sandbox_allow_env)

    @property
    def report(self) -> str:
        """One line for the log."""
        return report(self._around.mode, self._kernel)

    def confinement_of(
        self, version: ModelVersion, interpreter: Interpreter | None = None
    ) -> Confinement:
        """What workers of `version`, whose config is complete, may do; `interpreter`: what they run
        on, None for the server's own Python."""
        is_engine = version.config.backend == "llm"
        roots = self._settings.model_repository
        hidden = (*self._around.repositories, *linked_models(roots))
        return Confinement(
            self._kernel,
            self._around._replace(repositories=hidden),
            self._tenant(version, is_engine)._replace(
                environment=interpreter.readable if interpreter is not None else ()
            ),
            self._scratch,
            self._keep,
            0 if is_engine else self._settings.worker_memory_limit,
            self._settings.worker_output_limit,
        )

    def build_sandbox(
        self, folder: Path, readable: tuple[str, ...], programs: bool, network: bool
    ) -> Sandbox | None:
        """Of a process that makes an environment in `folder` of what others wrote; `programs`:
        whether it starts some, as pip does. None if off."""
        around = self._around
        if around.mode == "off":
            return None
        base = parser_sandbox(
            self._kernel,
            (*around.secrets, *around.repositories),
            (*around.runtime, *map(os.path.realpath, readable), _real(folder)),
            everywhere=True,
        )
        return base._replace(
            writable=(_real(folder),),
            network=network,
            execute=programs,
            fork=programs,
            attributes=True,  # compilers mark what they made as a program
        )

    def adopt_orphans(self) -> None:
        """End what workers start and leave behind, from here on; where they are confined."""
        if self._around.mode != "off":
            adopt_and_end()

    def close(self) -> None:
        """Remove what workers have left."""
        self._scratch.close()

    def _tenant(self, version: ModelVersion, is_engine: bool) -> ConfinedWorker:
        """Engines are our own code: no network, and a cache for kernels that they compile."""
        return ConfinedWorker(
            model=_real(version.folder),
            version=_real(version.path),
            scratch="",
            linked=tuple(_linked_files(version.path)),
            network=not is_engine and self._may_connect(version),
            caches=tuple(_kernel_caches()) if is_engine else (),
            compiles=is_engine,
            gpu=may_use_gpu(version.config, self._gpus),
        )

    def _may_connect(self, version: ModelVersion) -> bool:
        """What lies in the operator's own folders may, under `strict` where its config asks for it;
        what came from elsewhere where its config asks and its repository has the permission."""
        asks = asks_for_network(version.config.parameters)
        if self.is_operators(version):
            return asks or self._around.mode != "strict"
        return asks and version.network_allowed

    def is_operators(self, version: ModelVersion) -> bool:
        """Whether it lies in a model repository folder rather than in the state or the store."""
        return is_operators(version, self._settings)


def checker_sandbox(settings: Settings, sockets: Path) -> Sandbox | None:
    """Of processes that check models: they read models wherever those lie, and nothing secret; None
    where the sandbox is off."""
    if settings.worker_sandbox == "off":
        return None
    models = (settings.store_folder / "snapshots", settings.state_dir / "overrides")
    for folder in (settings.state_dir, settings.store_folder, *models):  # a rule needs a folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    hidden = (*secrets(settings, sockets), *home_secrets())
    readable = (*map(_real, (*settings.model_repository, *models)), *_runtime())
    return parser_sandbox(kernel(), hidden, readable, everywhere=True)


def confined_checker(settings: Settings, sockets: Path) -> Checker:
    """The processes that check models, in `checker_sandbox`, with the rules the settings give."""
    rules = ConfigCompletion(
        not settings.disable_auto_complete_config, settings.default_max_batch_size
    )
    sandbox = checker_sandbox(settings, sockets)
    return Checker(settings.check_timeout_secs, rules=rules, sandbox=sandbox)


def template_sandbox(settings: Settings) -> Sandbox | None:
    """Of the process that renders chat templates: it reads what it runs on; None if off."""
    if settings.worker_sandbox == "off":
        return None
    return parser_sandbox(kernel(), (), (*_runtime(), *_SYSTEM), everywhere=False)


def home_secrets() -> tuple[str, ...]:
    """Where people and tools keep credentials in their home."""
    return tuple(_real(Path.home() / name) for name in _HOME_SECRETS)


_HOME_SECRETS = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".config/gcloud", ".kube", ".docker", ".netrc"),
    *(".git-credentials", ".pgpass", ".pypirc", ".cache/huggingface/token"),
)


def surroundings(settings: Settings, sockets: Path) -> SandboxEnvironment:
    """Of this process and machine; looks at paths and the environment."""
    home = _real(Path.home())
    homes = () if home == "/" else (home,)
    return SandboxEnvironment(
        mode=settings.worker_sandbox,
        secrets=(*secrets(settings, sockets), *homes),
        repositories=tuple(map(_real, settings.model_repository)),
        runtime=tuple(_runtime()),
        system=_SYSTEM,
        allow_read=tuple(map(_real, (*settings.worker_sandbox_allow_read, *_configured_caches()))),
        allow_write=tuple(map(_real, settings.worker_sandbox_allow_write)),
    )


def secrets(settings: Settings, sockets: Path) -> tuple[str, ...]:
    """Real paths of all that the server keeps and no model may read."""
    keys = (settings.http_server_key, settings.grpc_server_key)
    tokens = [Path(cache) / name for cache in _configured_caches() for name in _HF_TOKENS]
    found = [settings.state_dir, settings.store_folder, sockets, *filter(None, keys)]
    return tuple(map(_real, (*found, *_database_files(settings.database_url), *tokens)))


_HF_TOKENS = ("token", "stored_tokens", "huggingface/token", "huggingface/stored_tokens")


def linked_models(repositories: Iterable[Path]) -> Iterator[str]:
    """Real paths of models and versions that are links in a repository, and lie elsewhere."""
    for repository in repositories:
        for model in _folders(repository):
            for entry in (model, *_folders(model)):
                if entry.is_symlink():
                    yield _real(entry)


def _folders(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir()]
    except OSError:
        return []


def _linked_files(version: Path) -> Iterator[str]:
    """Real paths of the files that links below a version's folder lead to."""
    count = 0
    for folder, _, names in os.walk(version):
        for name in names:
            count += 1
            if count > _MOST_LINKS:
                return
            path = os.path.join(folder, name)
            if os.path.islink(path):
                yield os.path.realpath(path)


def _runtime() -> Iterator[str]:
    """The interpreter with its libraries, and our own packages."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, str(Path(sys.executable).parent)}
    paths = [one for one in sys.path if Path(one).is_dir() and Path(one) != Path.cwd()]
    packages = [*site.getsitepackages(), site.getusersitepackages(), str(_ROOT)]
    authorities = [value for name in _AUTHORITIES if (value := os.environ.get(name))]
    found = {_real(Path(one)) for one in (*prefixes, *paths, *packages, *authorities)}
    yield from sorted(found - {"/"})


def _configured_caches() -> list[Path]:
    return [Path(value).absolute() for name in _CACHES if (value := os.environ.get(name))]


def _kernel_caches() -> Iterator[str]:
    """Where engines keep what they compiled; made here, because a rule needs a folder."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "modelyard"
    triton = Path(os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton")
    for folder in (cache, triton):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            _log.warning("the cache folder %s cannot be created: %s", folder, error.strerror)
        yield _real(folder)


def _database_files(url: str) -> list[Path]:
    path = url.partition("sqlite:///")[2].partition("?")[0]
    return [Path(path + end) for end in ("", "-wal", "-shm", "-journal")] if path else []


def _real(path: Path | str) -> str:
    return os.path.realpath(path)
