"""What config.pbtxt says of how to hold and serve a language model; no torch.

Each is a parameter: `parameters { key: "context" value { string_value: "4096" } }`. What is not
understood is refused, naming the parameter, its value and what would be taken.
"""

from dataclasses import dataclass
from typing import Literal, NoReturn, get_args

from backends.artefact import refuse
from backends.limits import read_bytes
from backends.llm.config.precision import CacheType, Precision
from backends.llm.model.pooling import KINDS
from backends.llm.tools.formats import AUTO, FORMATS
from repository.config.generation_defaults import NAMES as SAMPLING
from repository.config.generation_defaults import SWITCH, SWITCHES, parsed
from repository.config.parameter_table import PARAMETERS
from repository.model import ModelVersion

Kernels = Literal["auto", "torch"]
ContentTokens = Literal["text", "control"]

_ELSEWHERE = frozenset(row.key for row in PARAMETERS if not row.backends)
"""Parameters that say something to other parts of the server, with those that have a dot."""


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """The parameters, by their names there.

    `context` 0: the model's own, up to DEFAULT_CONTEXT. `memory_budget` 0: what `plan.wanted`
    makes of the rest. `threads` 0: as `instance_group` and the machine's cores give.
    `kernels` "torch": plain torch, even where our kernels would serve. `max_running`: sequences
    that are computed at once. `max_waiting`, `max_waiting_tokens`: requests, and tokens of their
    prompts, that may wait beside them. `step_milliseconds`: how long a step in which answers get
    tokens is to take, as far as shorter chunks of prompts can help. `stall_seconds`: how long a
    step may take before the engine is held for stuck and started again. `pooling`: makes vectors
    of texts in this way, "" where the checkpoint says whether and how. `tool_format`: how the model
    writes calls of tools, "auto" as its chat template teaches. `content_tokens` "control": what
    reads like a control token in a chat's messages becomes one, for everybody who may ask.
    `generation_config` "ignore": the checkpoint's defaults for sampling do not count; `sampling`:
    those that the parameters give, as text.
    """

    precision: Precision = "int8"
    cache_type: CacheType = "auto"
    kernels: Kernels = "auto"
    context: int = 0
    memory_budget: int = 0
    threads: int = 0
    max_running: int = 64
    max_waiting: int = 256
    max_waiting_tokens: int = 1 << 18
    step_tokens: int = 256
    step_milliseconds: int = 500
    stall_seconds: int = 60
    pooling: str = ""
    tool_format: str = AUTO
    content_tokens: ContentTokens = "text"
    generation_config: str = "auto"
    sampling: tuple[tuple[str, str], ...] = ()


_WORDS = {
    "precision": get_args(Precision),
    "cache_type": get_args(CacheType),
    "kernels": get_args(Kernels),
    "pooling": KINDS,
    "tool_format": (AUTO, *FORMATS),
    "content_tokens": get_args(ContentTokens),
    SWITCH: SWITCHES,
}
_RANGES = {
    "context": (1, 1 << 24),
    "threads": (1, 1024),
    "max_running": (1, 4096),
    "max_waiting": (1, 1 << 20),
    "max_waiting_tokens": (1, 1 << 31),
    "step_tokens": (1, 1 << 16),
    "step_milliseconds": (1, 86_400_000),
    "stall_seconds": (1, 86_400),
}
NAMES = (*_WORDS, *_RANGES, "memory_budget", *SAMPLING)


def read_settings(version: ModelVersion) -> ServeSettings:
    """The settings of a version's config. Raises LoadFailed naming the parameter that is wrong."""
    given = {
        name: value.string_value
        for name, value in version.config.parameters.items()
        if "." not in name and name not in _ELSEWHERE
    }
    own = {name: given.pop(name) for name in SAMPLING if name in given}
    for name, text in own.items():
        try:
            parsed(name, text)
        except ValueError as error:
            refuse(version, f"parameter {name} is '{text:.80}'; {error}")
    read: dict[str, object] = {name: _read(version, name, text) for name, text in given.items()}
    settings = ServeSettings(**read, sampling=tuple(own.items()))  # type: ignore[arg-type]
    if settings.max_running > settings.step_tokens:
        refuse(
            version,
            f"parameter max_running is {settings.max_running}, more than step_tokens "
            f"({settings.step_tokens}): every running sequence needs one token of a step",
        )
    return settings


def _read(version: ModelVersion, name: str, text: str) -> str | int:
    if name in _WORDS:
        if text not in _WORDS[name]:
            _wrong(version, name, text, f"one of {', '.join(_WORDS[name])}")
        return text
    if name in _RANGES:
        least, most = _RANGES[name]
        is_short = text.isascii() and text.isdigit() and len(text) <= 18
        if not (is_short and least <= int(text) <= most):
            _wrong(version, name, text, f"a whole number from {least} to {most}")
        return int(text)
    if name != "memory_budget":
        taken = ", ".join(NAMES)
        refuse(version, f"there is no parameter '{name:.80}'; a language model takes {taken}")
    return _bytes(version, name, text)


def _bytes(version: ModelVersion, name: str, text: str) -> int:
    count = read_bytes(text)
    if count < 1:
        _wrong(version, name, text, "a number of bytes such as 800MiB or 4GiB")
    return count


def _wrong(version: ModelVersion, name: str, text: str, wanted: str) -> NoReturn:
    refuse(version, f"parameter {name} is '{text:.80}'; it must be {wanted}")
