"""Every setting of `modelyard serve`: the one table behind flags, TOML, environment and docs.

`server.settings.sources.read_settings` makes a `Settings` from those sources; `Settings(...)`
made directly is checked the same way.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path

from control.series.levels import USUAL_LIMIT_BYTES
from server.process.machine import usable_cores, usable_memory
from server.settings import trace_config
from server.settings.jobs import JobSettings
from server.settings.kinds import BOOLEAN, CACHE, FOLDER, NAME, TEXT, choice, seconds, whole
from server.settings.kinds import setting as _setting
from server.settings.listeners import UNIX, check_listeners
from server.settings.memory import BUDGET, budgets
from server.settings.metrics_config import METRICS_CONFIG
from server.settings.row import Setting
from server.settings.trace_config import TRACE_CONFIG
from server.settings.urls import DATABASE, SOURCE, WEBHOOK_PREFIX

BUFFER_SHARE = 4
"""The part of the memory that requests and answers may take unless told otherwise: a quarter."""
LEAST_BUFFER_BYTES = 16 * 2**20

_STATE_DIR = Path(".modelyard")

OWN_DATABASE = "modelyard.db"
"""In the state folder, where no database is named."""


class SettingsError(Exception):
    """Settings that cannot be used: names the source, the key, the value and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(JobSettings):
    """What the server was told. `sources` maps a field's name to where its value came from.

    Durations are seconds, sizes bytes. `cores` and `metrics_address` are resolved on creation.
    What concerns the listeners is in `ListenerSettings`, what workers may do in `SandboxSettings`,
    when a version is not well in `HealthSettings`.
    Raises SettingsError when the values contradict each other.
    """

    model_repository: tuple[Path, ...] = _setting(
        "Models",
        FOLDER,
        (Path("models"),),
        "Folder of models to serve; repeat it for several.",
        repeat=True,
    )
    model_control_mode: str = _setting(
        "Models",
        choice("none", "poll", "explicit"),
        "poll",
        "none: load everything once; poll: follow changes in the folders; explicit: load and "
        "unload on request.",
    )
    repository_poll_secs: float = _setting(
        "Models",
        seconds(0),
        15.0,
        "Longest time between two scans of the folders in poll mode; file events make it sooner, "
        "and a file system that other machines write to is scanned each second. 0: they are not "
        "followed.",
    )
    allow_empty_repository: bool = _setting(
        "Models",
        BOOLEAN,
        False,
        "Unload everything when a folder of models turns empty at once. Otherwise what was loaded "
        "from it keeps serving: an unmounted disk looks the same.",
    )
    load_model: tuple[str, ...] = _setting(
        "Models",
        NAME,
        (),
        "Model to load at start in explicit mode; repeat it, or '*' for all.",
        note="none",
        repeat=True,
    )
    model_config_name: str = _setting(
        "Models",
        NAME,
        "",
        "Read configs/NAME.pbtxt in a model's folder, where it exists, instead of config.pbtxt.",
        note="none",
    )
    initial_fetch_timeout_secs: float = _setting(
        "Models",
        seconds(0),
        15.0,
        "Longest a server that starts is not ready because it has not received the current desired "
        "state from its control process and loaded it; then it is ready with the one on its disk. "
        "0: it does not wait.",
    )
    strict_readiness: bool = _setting(
        "Models", BOOLEAN, True, "Be ready only while every desired model is ready."
    )
    exit_on_error: bool = _setting(
        "Models", BOOLEAN, False, "Stop with status 1 when a model fails to load at start."
    )
    model_load_thread_count: int = _setting(
        "Models", whole(1, 256), 4, "Models loaded at the same time."
    )
    model_load_timeout_secs: float = _setting(
        "Models", seconds(0.1), 600.0, "Longest a model may take to load."
    )
    model_execute_timeout_secs: float = _setting(
        "Models",
        seconds(0),
        600.0,
        "Longest an execution may go on without progress (0: no limit); every response it sends "
        "restarts the timer. Then its worker is killed and restarted. A model's config may say "
        "otherwise with the parameter execute_timeout_secs.",
    )
    model_load_retry_count: int = _setting(
        "Models", whole(0, 100), 0, "How often a load that failed is tried again at once."
    )
    check_timeout_secs: float = _setting(
        "Models", seconds(0.1), 60.0, "Longest the check of a version's files may take."
    )
    disable_auto_complete_config: bool = _setting(
        "Models", BOOLEAN, False, "Take configs as written; fill in nothing from the model's file."
    )
    default_max_batch_size: int = _setting(
        "Models",
        whole(0, 1_000_000),
        4,
        "max_batch_size of a model that can batch and whose config does not say. Triton's "
        "--backend-config=default-max-batch-size=N is understood too.",
    )
    default_max_queue_size: int = _setting(
        "Models",
        whole(1, 100_000_000),
        10_000,
        "Requests that may wait for a model whose config sets no bound.",
    )

    cache_config: str = _setting(
        "Models",
        CACHE,
        "",
        "Keep answers of models whose config has response_cache { enable: true }, in so many bytes "
        "of memory: local,size=BYTES.",
        note="none",
    )

    allow_client_shm: bool = _setting(
        "Access",
        BOOLEAN,
        False,
        "Let clients register shared memory of this machine and keep tensors in it. Whoever can "
        "send requests can then read and write every shared memory object this user can.",
    )
    allow_code_in_load_requests: bool = _setting(
        "Access",
        BOOLEAN,
        False,
        "In explicit mode, let load requests bring models that run code: python, TorchScript, "
        "libraries of custom operators. Whoever can send one then runs code in the server's name.",
    )
    allow_model_control_by_models: bool = _setting(
        "Access",
        BOOLEAN,
        False,
        "Let python models load, unload and look at other models (pb_utils.load_model and its "
        "siblings). Whoever writes such a model then decides which models are served.",
    )
    import_allow: tuple[str, ...] = _setting(
        "Access",
        SOURCE,
        (),
        "Import models only from URLs below these prefixes; repeat it for several. They may lead "
        "to private addresses, and to buckets that this server's credentials can read.",
        note="public https://, http:// and hf://",
        repeat=True,
    )
    notification_allow: tuple[str, ...] = _setting(
        "Access",
        WEBHOOK_PREFIX,
        (),
        "Send notifications only to webhooks below these prefixes; repeat it for several. They may "
        "lead to private addresses, and http:// to them is not refused.",
        note="public https://",
        repeat=True,
    )
    client_shm_max_tensor_size: int = _setting(
        "Limits",
        whole(1, 2**40, "BYTES"),
        128 * 2**20,
        "Largest tensor in shared memory of a client; copying 64 MiB takes the event loop 16 ms.",
    )
    metrics_config: tuple[str, ...] = _setting(
        "Listening",
        METRICS_CONFIG,
        (),
        "Show or hide metrics as Triton does; repeat it for several.",
        note="counter_latencies=true histogram_latencies=false",
        repeat=True,
    )
    allow_cpu_metrics: bool = _setting(
        "Listening", BOOLEAN, True, "Show the metrics of the machine's CPU and memory."
    )

    cores: int = _setting(
        "Limits",
        whole(0, 4096),
        0,
        "CPU cores the models may use; 0 for all this process has.",
        note="0: all",
    )
    memory_budget: tuple[str, ...] = _setting(
        "Limits",
        BUDGET,
        (),
        "Memory of a device that models may take; repeat it for several. A load beyond it is "
        "refused, naming who holds what. A GPU without one is not bounded.",
        note="cpu: 80 % of the memory this process may use",
        repeat=True,
    )
    buffer_limit: int = _setting(
        "Limits",
        whole(0, 2**50, "BYTES"),
        0,
        "Memory for messages that are not complete or not answered yet, and for answers that wait "
        "for their client. A connection may hold no more of it than it leaves free; what does not "
        "fit is refused. At least 16 MiB.",
        note="a quarter of the memory this process may use",
    )
    exit_timeout_secs: float = _setting(
        "Limits",
        seconds(0),
        30.0,
        "Longest the server takes to end after SIGTERM or SIGINT, also when models hang (10 where "
        "it is less). Running requests have all of it but the last fifth, at most 5 s, in which "
        "models finalize.",
    )

    id: str = _setting("Server", TEXT, "modelyard", "Name the server gives itself on the wire.")
    state_dir: Path = _setting(  # noqa: RUF009 (a frozen default, like the others)
        "Server", FOLDER, _STATE_DIR, "Folder for everything the server keeps."
    )
    store_dir: Path | None = _setting(  # noqa: RUF009 (a frozen default, like the others)
        "Server",
        FOLDER,
        None,
        "Folder for git repositories, large files and deployed models; servers with one database "
        "share it.",
        note="STATE_DIR/store",
    )
    database: str = _setting(
        "Server",
        DATABASE,
        "",
        "Database of users, tokens, deployments and the audit: PostgreSQL, or a file of SQLite. A "
        "password is better given as MODELYARD_DATABASE than on the command line.",
        note="sqlite:///STATE_DIR/modelyard.db",
    )
    series_limit: int = _setting(
        "Server",
        whole(2**20, 2**50, "BYTES"),
        USUAL_LIMIT_BYTES,
        "Room in the database for time series of what was served; the oldest go first.",
    )
    drift_limit: int = _setting(
        "Server",
        whole(2**20, 2**50, "BYTES"),
        256 * 2**20,
        "Room in the database for what is counted of drift; the oldest go first.",
    )
    drift_window_secs: int = _setting(
        "Server",
        whole(1, 3600, "SECONDS"),
        60,
        "How long is counted of a model whose drift is watched before it is sent to the database.",
    )
    log_level: str = _setting(
        "Server", choice("debug", "info", "warning", "error"), "info", "Least level to log."
    )
    log_format: str = _setting(
        "Server",
        choice("text", "json", "triton", "ISO8601"),
        "text",
        "Log for people, for machines, or in Triton's forms default and ISO8601.",
    )
    log_file: str = _setting(
        "Server", TEXT, "", "File to append the log to instead of standard error.", note="none"
    )
    log_verbose: int = _setting(
        "Server", whole(0, 2**31 - 1), 0, "Triton's verbosity; from 1 on, debug lines are logged."
    )
    log_info: bool = _setting("Server", BOOLEAN, True, "Log lines of level info.")
    log_warning: bool = _setting("Server", BOOLEAN, True, "Log lines of level warning.")
    log_error: bool = _setting("Server", BOOLEAN, True, "Log lines of level error.")
    trace_config: tuple[str, ...] = _setting(
        "Server",
        TRACE_CONFIG,
        (),
        "What to trace, and where to: Triton's --trace-config, with all of its keys. "
        "The older --trace-file, --trace-level, --trace-rate, --trace-count and "
        "--trace-log-frequency are understood too.",
        note="none",
        repeat=True,
    )

    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cores", self.cores or usable_cores())
        object.__setattr__(self, "metrics_address", self.metrics_address or self._rest_host())
        self._check_models()
        if wrong := check_listeners(self):
            raise SettingsError(wrong)
        try:
            budgets(self.memory_budget, 0)
        except ValueError as error:
            raise SettingsError(f"{self.source('memory_budget')}: memory_budget: {error}") from None
        if wrong := trace_config.contradiction(self.trace_config):
            raise SettingsError(f"{self.source('trace_config')}: trace_config: {wrong}")

    @property
    def store_folder(self) -> Path:
        """`store_dir`, or its default."""
        return self.store_dir or self.state_dir / "store"

    @property
    def database_url(self) -> str:
        """`database`, or its default. It may hold a password: see `Setting.shown`."""
        return self.database or f"sqlite:///{self.state_dir.absolute() / OWN_DATABASE}"

    @property
    def cache_bytes(self) -> int:
        """The size of the response cache; 0 for none."""
        return int(self.cache_config.rpartition("=")[2] or 0)

    @property
    def buffer_bytes(self) -> int:
        """`buffer_limit`, or its default; never so little that nothing could be served."""
        share = usable_memory() // BUFFER_SHARE or 4 * LEAST_BUFFER_BYTES
        return max(self.buffer_limit or share, LEAST_BUFFER_BYTES)

    @property
    def memory_budgets(self) -> dict[str, int]:
        """Bytes by device that models may take; a device that is missing is not bounded."""
        return budgets(self.memory_budget, usable_memory())

    @property
    def repository_may_be_missing(self) -> bool:
        """As with Triton, whoever says that errors do not end the server means missing folders too;
        where nobody has said so, a misspelt folder is told at once."""
        return not self.exit_on_error and self.source("exit_on_error") != "default"

    def source(self, name: str) -> str:
        """Where the value of field `name` came from, e.g. "--http-port" or "default"."""
        return self.sources.get(name, "default")

    def _rest_host(self) -> str:
        return "127.0.0.1" if self.http_address.startswith(UNIX) else self.http_address

    def _check_models(self) -> None:
        if not self.model_repository:
            raise SettingsError(
                f"{self.source('model_repository')}: model_repository is empty; name a folder"
            )
        if "/" in self.model_config_name:
            raise SettingsError(
                f"{self.source('model_config_name')}: model_config_name "
                f"'{self.model_config_name}' is a path; give the name alone, without .pbtxt"
            )
        if self.load_model and self.model_control_mode != "explicit":
            raise SettingsError(
                f"{self.source('load_model')}: load_model needs --model-control-mode=explicit; "
                f"in {self.model_control_mode} mode every model is loaded"
            )
        if "*" in self.load_model and len(self.load_model) > 1:
            raise SettingsError(
                f"{self.source('load_model')}: '*' loads every model and must be the only one"
            )


SECTIONS = ("Models", "Listening", "TLS", "Access", "Limits", "Health", "Jobs", "Server")
TABLE: tuple[Setting, ...] = tuple(
    sorted(
        (
            Setting(name=row.name, default=row.default, **row.metadata)
            for row in fields(Settings)
            if row.default is not MISSING
        ),
        key=lambda row: SECTIONS.index(row.section),
    )
)
