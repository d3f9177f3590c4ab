"""Every setting of `modelyard serve`: the one table behind flags, TOML, environment and docs.

`server.settings_sources.read_settings` makes a `Settings` from those sources; `Settings(...)`
made directly is checked the same way.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from server.machine import usable_cores
from server.setting_kinds import (
    ADDRESS,
    BOOLEAN,
    FOLDER,
    NAME,
    PORT,
    TEXT,
    Kind,
    choice,
    seconds,
    whole,
)

_STATE_DIR = Path(".modelyard")


class SettingsError(Exception):
    """Settings that cannot be used: names the source, the key, the value and what is allowed."""


def _setting(
    section: str, kind: Kind, default: Any, text: str, note: str = "", repeat: bool = False
) -> Any:
    """One row of the table. `note` replaces the default in help where the default is computed."""
    row = {"section": section, "kind": kind, "text": text, "note": note, "repeat": repeat}
    return field(default=default, metadata=row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the server was told. `sources` maps a field's name to where its value came from.

    Durations are seconds, sizes bytes. `cores` and `metrics_address` are resolved on creation.
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
        seconds(0.05),
        1.0,
        "Longest time between two looks at the folders in poll mode; file events make it sooner.",
    )
    load_model: tuple[str, ...] = _setting(
        "Models",
        NAME,
        (),
        "Model to load at start in explicit mode; repeat it, or '*' for all.",
        note="none",
        repeat=True,
    )
    strict_readiness: bool = _setting(
        "Models", BOOLEAN, True, "Be ready only while every wanted model is ready."
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

    allow_http: bool = _setting("Listening", BOOLEAN, True, "Open the REST door.")
    http_address: str = _setting("Listening", ADDRESS, "127.0.0.1", "Address of the REST door.")
    http_port: int = _setting("Listening", PORT, 8000, "Port of the REST door.")
    allow_grpc: bool = _setting("Listening", BOOLEAN, True, "Open the gRPC door.")
    grpc_address: str = _setting("Listening", ADDRESS, "127.0.0.1", "Address of the gRPC door.")
    grpc_port: int = _setting("Listening", PORT, 8001, "Port of the gRPC door.")
    allow_metrics: bool = _setting("Listening", BOOLEAN, True, "Serve Prometheus metrics.")
    metrics_address: str = _setting(
        "Listening", ADDRESS, "", "Address of the metrics.", note="as --http-address"
    )
    metrics_port: int = _setting("Listening", PORT, 8002, "Port of the metrics.")
    admin_port: int = _setting(
        "Listening",
        PORT,
        8003,
        "Reserved for the console and the control API, which land next; nothing listens here yet.",
    )
    allow_unauthenticated: bool = _setting(
        "Listening",
        BOOLEAN,
        False,
        "Allow addresses other machines can reach, though there is no authentication yet.",
    )

    http_max_input_size: int = _setting(
        "Limits", whole(1, 2**40, "BYTES"), 64 * 2**20, "Largest REST request body."
    )
    http_max_json_depth: int = _setting(
        "Limits", whole(1, 10_000), 100, "Deepest nesting of a JSON body."
    )
    grpc_max_message_size: int = _setting(
        "Limits", whole(1, 2**31 - 1, "BYTES"), 2**31 - 1, "Largest gRPC message, both ways."
    )
    cores: int = _setting(
        "Limits",
        whole(0, 4096),
        0,
        "CPU cores the models may use; 0 for all this process has.",
        note="0: all",
    )
    exit_timeout_secs: float = _setting(
        "Limits", seconds(0), 30.0, "Longest wait for running requests after SIGTERM or SIGINT."
    )

    id: str = _setting("Server", TEXT, "modelyard", "Name the server gives itself on the wire.")
    state_dir: Path = _setting(  # noqa: RUF009 (a frozen default, like the others)
        "Server", FOLDER, _STATE_DIR, "Folder for everything the server keeps."
    )
    log_level: str = _setting(
        "Server", choice("debug", "info", "warning", "error"), "info", "Least level to log."
    )
    log_format: str = _setting(
        "Server", choice("text", "json"), "text", "Log for people or for machines."
    )

    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cores", self.cores or usable_cores())
        object.__setattr__(self, "metrics_address", self.metrics_address or self.http_address)
        self._check_models()
        self._check_reach()
        self._check_ports()

    def source(self, name: str) -> str:
        """Where the value of field `name` came from, e.g. "--http-port" or "default"."""
        return self.sources.get(name, "default")

    def _check_models(self) -> None:
        if not self.model_repository:
            raise SettingsError(
                f"{self.source('model_repository')}: model_repository is empty; name a folder"
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

    def _check_reach(self) -> None:
        for door in self._doors():
            address = getattr(self, f"{door}_address")
            if not self.allow_unauthenticated and not _is_loopback(address):
                raise SettingsError(
                    f"{self.source(f'{door}_address')}: {door}_address '{address}' can be reached "
                    "by other machines and there is no authentication yet; stay on 127.0.0.1, or "
                    "pass --allow-unauthenticated if the network is yours"
                )

    def _check_ports(self) -> None:
        seen: dict[tuple[str, int], str] = {}
        for door in self._doors():
            place = (getattr(self, f"{door}_address"), getattr(self, f"{door}_port"))
            other = seen.setdefault(place, door)
            if other != door and place[1]:
                raise SettingsError(
                    f"{self.source(f'{door}_port')}: {door}_port {place[1]} is also the "
                    f"{other}_port ({self.source(f'{other}_port')}); give each its own"
                )

    def _doors(self) -> list[str]:
        return [door for door in ("http", "grpc", "metrics") if getattr(self, f"allow_{door}")]


def _is_loopback(address: str) -> bool:
    if address == "localhost":
        return True
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Setting:
    """A row of the table, as flags, variables, TOML and docs need it."""

    name: str
    section: str
    kind: Kind
    default: Any
    text: str
    note: str
    repeat: bool

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return "MODELYARD_" + self.name.upper()

    @property
    def default_text(self) -> str:
        """The default as a person would write it."""
        if self.note:
            return self.note
        if isinstance(self.default, tuple):
            return ", ".join(map(str, self.default))
        if isinstance(self.default, float):
            return f"{self.default:g}"
        return str(self.default).lower() if isinstance(self.default, bool) else str(self.default)


TABLE: tuple[Setting, ...] = tuple(
    Setting(name=row.name, default=row.default, **row.metadata)
    for row in fields(Settings)
    if row.default is not MISSING
)
SECTIONS: tuple[str, ...] = tuple(dict.fromkeys(row.section for row in TABLE))
