"""Tracing: which requests are followed through the house, and where their traces go.

Front ends ask `on` per request and, only then, `begin`; `server.trace.record` says what follows.
The wires' trace settings arrive at `settings` and `change`. All on the event loop's thread.
"""

import itertools
from pathlib import Path

from repository.install_lines import install_line
from server.errors import InvalidRequest, Unsupported
from server.settings.trace_config import OPENTELEMETRY, TraceConfig
from server.settings.trace_settings import OFF, Given, InvalidSetting, read_changes
from server.trace.context import parent_in
from server.trace.record import RequestReceipt, Trace
from server.trace.sampling import Sampler, Samplers
from server.trace.writer import TraceSink, TraceWriter

CLOSE_SECS = 5.0
"""Longest the end of the server waits for traces to be written."""


class CannotTrace(Exception):
    """Tracing as configured is impossible here; says what would make it possible."""


def start_tracing(config: TraceConfig, service: str, version: str) -> "Tracing":
    """Tracing as the settings want it; `service` and `version` are what spans say of the server.

    Raises CannotTrace.
    """
    return Tracing(config, _sink(config, service, version))


def _sink(config: TraceConfig, service: str, version: str) -> TraceSink | None:
    if config.mode == OPENTELEMETRY:
        return _span_export(config, service, version)
    if not config.file:
        return None
    path = Path(config.file)
    if not path.absolute().parent.is_dir():
        raise CannotTrace(
            f"--trace-config: the trace file '{config.file}' cannot be written: there is no folder "
            f"'{path.absolute().parent}'"
        )
    from server.trace.file import TraceFile

    return TraceFile(path)


def _span_export(config: TraceConfig, service: str, version: str) -> TraceSink:
    try:
        from server.trace.otel import SpanExport
    except ImportError as error:
        raise CannotTrace(
            f"--trace-config: mode=opentelemetry needs packages that are missing ({error.name}); "
            f"install them with: {install_line('otel')}"
        ) from error
    resource = {"service.name": service, "service.version": version, **config.resource}
    return SpanExport(config.url, resource, config.options)


class Tracing:
    """The settings in force and the way out for traces. Without arguments: off, and no file."""

    def __init__(self, config: TraceConfig | None = None, sink: TraceSink | None = None) -> None:
        self._config = config or TraceConfig()
        self._samplers = Samplers(self._config.settings, self._config.refusal)
        self._writer = TraceWriter(sink) if sink is not None else None
        self._follows_callers = self._config.mode == OPENTELEMETRY
        self._leaving: set[Sampler] = set()
        self._numbers = itertools.count(1)
        self.on = self._samplers.active(self._follows_callers)
        """Whether `begin` might want a request."""

    @property
    def written(self) -> int:
        return self._writer.written if self._writer else 0

    @property
    def dropped(self) -> int:
        return self._writer.dropped if self._writer else 0

    def begin(self, model: str, version: int, received: RequestReceipt) -> Trace | None:
        """A trace for a request to this version, if it is one to be traced.

        In mode "opentelemetry" a caller whose own trace is sampled is always followed, one whose
        trace is not never.
        """
        sampler = self._samplers.of(model)
        parent = parent_in(received.headers) if self._follows_callers else None
        if not sampler.take(parent.sampled if parent is not None else None):
            return None
        if not sampler.remaining:
            self.on = self._samplers.active(self._follows_callers)
        who = (model, version)
        return Trace(next(self._numbers), who, received, parent, sampler, self._keep)

    def begin_child(self, parent: Trace, model: str, version: int) -> Trace:
        """A trace for a call that a traced request makes to this version; it counts neither for
        the rate nor for the count."""
        parent.sampler.open += 1
        return parent.child(next(self._numbers), (model, version))

    def _keep(self, trace: Trace) -> None:
        sampler = trace.sampler
        sampler.open -= 1
        if self._writer is None:
            return
        self._writer.put(trace)
        if sampler.exhausted or (sampler in self._leaving and not sampler.open):
            self._leaving.discard(sampler)
            self._writer.retire(sampler)

    def settings(self, model: str) -> dict[str, list[str]]:
        """The settings of a model, "" for the global ones, as texts under their wire names."""
        sampler = self._samplers.of(model)
        now = sampler.settings
        found = {
            "trace_level": list(now.level) or [OFF],
            "trace_rate": [str(now.rate)],
            "trace_count": [str(sampler.remaining)],
        }
        if self._config.mode == OPENTELEMETRY:
            found["trace_mode"] = [OPENTELEMETRY]
            found["url"] = [self._config.url]
            return found
        found["log_frequency"] = [str(now.log_frequency)]
        found["trace_file"] = [self._config.file]
        found["trace_mode"] = [self._config.mode]
        return found

    def change(self, model: str, given: Given) -> None:
        """Change the settings of a model ("": the global ones). Raises InvalidRequest,
        Unsupported, and changes nothing then."""
        if "trace_file" in given:
            raise Unsupported("trace file location can not be updated through network protocol")
        try:
            replaced = self._samplers.change(model, read_changes(given))
        except InvalidSetting as error:
            raise InvalidRequest(str(error)) from error
        for sampler in replaced:
            if sampler.open:
                self._leaving.add(sampler)
            elif self._writer is not None:
                self._writer.retire(sampler)
        self.on = self._samplers.active(self._follows_callers)

    def close(self) -> bool:
        """Write what waits; blocks up to CLOSE_SECS. False when traces were left behind."""
        self.on = False
        return self._writer is None or self._writer.close(CLOSE_SECS)
