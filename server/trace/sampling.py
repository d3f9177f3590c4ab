"""Which requests are traced: one sampler for everything, and one per model with its own settings.

Pure: `server.trace.tracing` asks `Sampler.take` for each request while tracing is on.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from server.settings.trace_settings import Changes, InvalidSetting, TraceSettings

_ALL = {field.name for field in fields(TraceSettings)}


class Sampler:
    """Settings in force, and how far they have been used. Replaced whole when they change.

    `remaining`: traces still to be taken, -1 for no end. `open`: traces taken and not yet ended.
    """

    __slots__ = ("_count", "open", "remaining", "settings")

    def __init__(self, settings: TraceSettings) -> None:
        self.settings = settings
        self.remaining = settings.count
        self.open = 0
        self._count = 0

    @property
    def exhausted(self) -> bool:
        """Whether the last trace it will take has ended."""
        return not self.remaining and not self.open

    def take(self, parent_sampled: bool | None = None) -> bool:
        """Whether to trace this request. What the caller's own trace decided (None: there is
        none) goes before rate and count."""
        if not self.settings.level:
            return False
        taken = self._due() if parent_sampled is None else parent_sampled
        self.open += taken
        return taken

    def _due(self) -> bool:
        if not self.settings.rate or not self.remaining:
            return False
        self._count += 1
        if self._count % self.settings.rate:
            return False
        if self.remaining > 0:
            self.remaining -= 1
        return True


class Samplers:
    """The global sampler and those of models with settings of their own.

    What a model has not set follows the global settings, and what those have not set the defaults.
    `refusal(settings)`: why they cannot be used, or nothing.
    """

    def __init__(self, defaults: TraceSettings, refusal: Callable[[TraceSettings], str]) -> None:
        self._defaults = defaults
        self._refusal = refusal
        self._set: dict[str, dict[str, Any]] = {"": {}}
        self._samplers = {"": Sampler(defaults)}

    def of(self, model: str) -> Sampler:
        """The sampler of a model; of all without one of their own for ""."""
        return self._samplers.get(model) or self._samplers[""]

    def active(self, callers: bool) -> bool:
        """Whether any request could be traced; `callers`: also because its caller wants it."""
        return any(
            sampler.settings.level and (callers or sampler.remaining)
            for sampler in self._samplers.values()
        )

    def change(self, model: str, changes: Changes) -> list[Sampler]:
        """Change a model's settings ("": the global ones); the samplers that were replaced.

        Raises InvalidSetting and changes nothing.
        """
        settings = {name: dict(values) for name, values in self._set.items()}
        for name, values in settings.items():
            if "count" in values:
                values["count"] = self._samplers[name].remaining
        own = settings.setdefault(model, {})
        own.update(changes)
        settings[model] = {field: value for field, value in own.items() if value is not None}
        stale = (
            [model]
            if model
            else ["", *(name for name in settings if settings[name].keys() != _ALL)]
        )
        made = {name: Sampler(self._merged(settings, name)) for name in stale}
        for sampler in made.values():
            reason = self._refusal(sampler.settings)
            if sampler.settings.level and reason:
                raise InvalidSetting(f"Attempting to set invalid trace setting :{reason}")
        replaced = [self._samplers[name] for name in stale if name in self._samplers]
        self._set = {name: values for name, values in settings.items() if values or not name}
        self._samplers.update(made)
        self._samplers = {name: self._samplers[name] for name in self._set}
        return replaced

    def _merged(self, settings: dict[str, dict[str, Any]], name: str) -> TraceSettings:
        return replace(self._defaults, **{**settings[""], **settings[name]})
