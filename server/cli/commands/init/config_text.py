"""A model's config as a commented config.pbtxt, for people who will edit it. Pure."""

from collections.abc import Iterator
from typing import Any

from google.protobuf import text_format
from google.protobuf.text_encoding import CEscape

from repository.model import ModelConfig

_WRITTEN = (
    "name",
    "backend",
    "default_model_filename",
    "max_batch_size",
    "input",
    "output",
    "dynamic_batching",
)
_FILLED_IN = ("version_policy", "optimization", "cc_model_filenames", "metric_tags")
"""What a completed config has beside; the server fills it in again."""

_BATCHED = """\
# The most rows of one batch. Dims below leave the batch dimension out.
max_batch_size: {size}
"""
_UNBATCHED = """\
# 0: requests are not joined into batches; dims below are whole shapes.
max_batch_size: 0
"""
_BATCHING = """\
# Requests that wait are joined into one batch. A request waits for others at most so long.
dynamic_batching { max_queue_delay_microseconds: 0 }
"""
_MORE = """\
# What else can be set; the values are examples.
#
# How many instances run at once, and where; without it the server decides.
# instance_group [ {{ count: 2 kind: KIND_CPU }} ]
#
# Which version folders are served; without it the highest number alone.
# version_policy {{ latest {{ num_versions: 2 }} }}
#
# A request to run before the model is ready, so that the first client need not wait.
# model_warmup [ {{ name: "first" batch_size: {rows}{inputs} }} ]
"""


def config_text(config: ModelConfig, origin: str, guessed: bool = False) -> str:
    """The text of a config.pbtxt made from `origin`, a file's name. `guessed`: types and dims of
    the tensors are nobody's word."""
    return "\n".join(_sections(config, origin, guessed))


def _sections(config: ModelConfig, origin: str, guessed: bool) -> Iterator[str]:
    yield (
        f"# Made by `modelyard init` from {plain(origin)}. The server fills in what is left out;\n"
        "# `modelyard check` reads this file as the server does.\n\n"
        "# The name clients use: that of this folder.\n"
        f"name: {_quoted(config.name)}\n"
    )
    yield f"# The runtime.\nbackend: {_quoted(config.backend)}\n"
    if config.default_model_filename:
        file = _quoted(config.default_model_filename)
        yield f"# The file in each version folder.\ndefault_model_filename: {file}\n"
    size = config.max_batch_size
    yield _BATCHED.format(size=size) if size else _UNBATCHED
    if guessed:
        yield (
            "# GUESSED from the names in the model's code: set data_type and dims to what it takes "
            "and returns.\n"
        )
    if config.input or config.output:
        yield "# What clients send, and get. In dims, -1 takes any size.\n" + _tensors(config)
    if config.HasField("dynamic_batching"):
        yield _BATCHING
    if rest := _rest(config):
        yield rest
    yield _MORE.format(rows=min(1, size), inputs="".join(map(_warmup, config.input)))


def _warmup(tensor: Any) -> str:
    kind = tensor.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
    dims = ", ".join(str(max(1, size)) for size in tensor.dims)
    return (
        f"\n#   inputs {{ key: {_quoted(tensor.name)} value {{ "
        f"data_type: {kind[tensor.data_type].name} dims: [ {dims} ] zero_data: true }} }}"
    )


def _tensors(config: ModelConfig) -> str:
    return "".join(_group("input", config.input) + _group("output", config.output))


def _group(name: str, tensors: Any) -> list[str]:
    if not tensors:
        return []
    rows = [f"  {{ {text_format.MessageToString(one, as_one_line=True)} }}" for one in tensors]
    return [f"{name} [\n", ",\n".join(_shortened(row) for row in rows), "\n]\n"]


def _shortened(row: str) -> str:
    """`dims: 1 dims: 2` as `dims: [ 1, 2 ]`."""
    words, found, dims = row.split(" dims: "), [], []
    head = words.pop(0)
    for word in words:
        number, _, after = word.partition(" ")
        dims.append(number)
        if after:
            found.append(after)
    return f"{head} dims: [ {', '.join(dims)} ] {' '.join(found)}" if dims else row


def _rest(config: ModelConfig) -> str:
    """Every other field that the model's file asks for."""
    rest = ModelConfig()
    rest.CopyFrom(config)
    for name in (*_WRITTEN, *_FILLED_IN):
        rest.ClearField(name)
    return text_format.MessageToString(rest)


def _quoted(text: str) -> str:
    escaped: str = CEscape(text.encode(), as_utf8=True)
    return f'"{escaped}"'


def plain(text: str) -> str:
    """Text of one line, for a comment."""
    return "".join(char if char.isprintable() else "?" for char in text)
