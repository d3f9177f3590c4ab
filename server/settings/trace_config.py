"""What `--trace-config` says: `[triton|opentelemetry,]KEY=VALUE`, as often as needed. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from server.settings.kinds import ValueKind
from server.settings.trace_settings import (
    OFF,
    TENSORS,
    TIMESTAMPS,
    TraceSettings,
    read_level,
    read_number,
)

TRITON, OPENTELEMETRY = "triton", "opentelemetry"

ALLOWED = (
    "of the form [triton|opentelemetry,]KEY=VALUE: level=OFF|TIMESTAMPS|TENSORS (repeatable), "
    "rate=N, count=N (-1: no end), mode=triton|opentelemetry; triton,file=PATH, "
    "triton,log-frequency=N; "
    "opentelemetry,url=URL, opentelemetry,resource=KEY=VALUE (repeatable), "
    "opentelemetry,bsp_max_queue_size=N, opentelemetry,bsp_max_export_batch_size=N, "
    "opentelemetry,bsp_schedule_delay=MILLISECONDS"
)


@dataclass(frozen=True, slots=True)
class TraceConfig:
    """How the server was told to trace. `file` is empty without one; `options`: bsp_* as given."""

    mode: str = TRITON
    file: str = ""
    settings: TraceSettings = field(default_factory=TraceSettings)
    url: str = ""
    resource: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, int] = field(default_factory=dict)

    def refusal(self, settings: TraceSettings) -> str:
        """Why nothing could be traced with these settings, or nothing."""
        if self.mode == OPENTELEMETRY:
            only_spans = "level TENSORS needs trace mode triton; opentelemetry has TIMESTAMPS"
            return only_spans if TENSORS in settings.level else ""
        if not settings.rate:
            return "sample rate must be non-zero"
        return "" if self.file else "trace file name is not given"


def parse(items: Sequence[str]) -> TraceConfig:
    """The configuration `items` add up to; of one key the last counts. Raises ValueError."""
    config = TraceConfig()
    for item in items:
        key, value = _split(item)
        config = _KEYS[key](config, value)
    return config


def contradiction(items: Sequence[str]) -> str:
    """Why nothing could be traced with `items` though they want it, or nothing."""
    try:
        config = parse(items)
    except ValueError as error:
        return str(error)
    return config.refusal(config.settings) if config.settings.level else ""


def _split(item: str) -> tuple[str, str]:
    key, equals, value = item.partition("=")
    mode, comma, name = key.rpartition(",")
    if comma and mode not in (TRITON, OPENTELEMETRY):
        raise ValueError(f"'{mode}' is no trace mode")
    if not equals or name not in _KEYS:
        raise ValueError(f"'{name}' is no key of a trace configuration")
    return name, value


_LEVELS = {
    **dict.fromkeys(("off", "false"), OFF),
    **dict.fromkeys(("timestamps", "true", "on", "min", "max"), TIMESTAMPS),
    "tensors": TENSORS,
}


def _level(config: TraceConfig, value: str) -> TraceConfig:
    """Each level given is added to those before; OFF takes them away. Words as Triton's command
    line reads them: in capitals or not, older names too."""
    value = _LEVELS.get(value.lower(), value)
    words = [word for word in (*config.settings.level, value) if word != OFF]
    read_level((value,))
    level = () if value == OFF else read_level(words)
    return replace(config, settings=replace(config.settings, level=level))


def _number(name: str, field_name: str) -> Callable[[TraceConfig, str], TraceConfig]:
    def read(config: TraceConfig, value: str) -> TraceConfig:
        changed: dict[str, Any] = {field_name: read_number(name, value)}
        return replace(config, settings=replace(config.settings, **changed))

    return read


def _mode(config: TraceConfig, value: str) -> TraceConfig:
    if value not in (TRITON, OPENTELEMETRY):
        raise ValueError(f"'{value}' is no trace mode")
    return replace(config, mode=value)


def _resource(config: TraceConfig, value: str) -> TraceConfig:
    key, equals, text = value.partition("=")
    if not (key and equals):
        raise ValueError(f"'{value}' is not KEY=VALUE")
    return replace(config, resource={**config.resource, key: text})


def _option(name: str) -> Callable[[TraceConfig, str], TraceConfig]:
    def read(config: TraceConfig, value: str) -> TraceConfig:
        number = int(value)
        if number < 1:
            raise ValueError(f"{name} must be at least 1")
        return replace(config, options={**config.options, name: number})

    return read


_KEYS: dict[str, Callable[[TraceConfig, str], TraceConfig]] = {
    "level": _level,
    "rate": _number("trace_rate", "rate"),
    "count": _number("trace_count", "count"),
    "mode": _mode,
    "file": lambda config, value: replace(config, file=value),
    "log-frequency": _number("log_frequency", "log_frequency"),
    "url": lambda config, value: replace(config, url=value),
    "resource": _resource,
    **{
        name: _option(name)
        for name in ("bsp_max_queue_size", "bsp_max_export_batch_size", "bsp_schedule_delay")
    },
}


def _read_item(text: str) -> str:
    parse((text,))
    return text


TRACE_CONFIG = ValueKind("[MODE,]KEY=VALUE", ALLOWED, _read_item, (str,), separator=";")
