"""Write docs/config.md, every field of config.pbtxt and every parameter, from
`repository.config.field_table` and `repository.config.parameter_table`.

Run by `./dev fix`; tests/docs fails while the page is out of date.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from repository.config.field_rows import ConfigField, FieldSupport
from repository.config.field_table import SECTIONS
from repository.config.parameter_table import PARAMETERS, ParameterKey
from repository.model import ModelConfig

PAGE = Path(__file__).resolve().parent / "config.md"
_INTRODUCTION = """# Every field of config.pbtxt

<!-- written by ./dev fix from repository/config/field_table.py and parameter_table.py -->

A model's `config.pbtxt` is Triton's `ModelConfig` in protobuf's text format. Most models need
none: what the model's file says is filled in ([what is completed](#what-is-completed)). Each
field here is

- **honoured**: it does what the table says;
- **ignored**: it is accepted without an effect, because no answer depends on it. `modelyard
  check` and a git push name it in a note (E155), and the server's log names it when the model is
  loaded;
- **refused**: it asks for something that this server does not do, and answers would differ. The
  model is not loaded, and [the finding](findings.md) says which line it is and what to do.

A field with backends in the last column has an effect with these alone, and is noted with others.
A field that does not exist is refused with the nearest name that does.
"""
_COMPLETED = """
## What is completed

Without a config, or with part of one, the server reads what the model's file records: the backend
by the file's name ([formats](formats.md)), inputs and outputs of ONNX models, exported PyTorch
programs and language models, and whether the first dimension is a batch. A TorchScript model
records no names or types, and a Python model says its own in `auto_complete_config`
([reference](tutorials/python-model.md#reference)). `--disable-auto-complete-config` takes configs
as they are written. `curl localhost:8000/v2/models/MODEL/config` shows what a model is served
with.

A config that contradicts the model's file is refused: a name, a type or a shape that the file
does not have.
"""
_PARAMETERS = """
## Parameters

`parameters { key: "context" value { string_value: "4096" } }`. A language model refuses a key
that it does not know. A Python model finds all of them in its `model_config`, its own ones too.
With other backends a key that nobody reads is left alone, and noted where it resembles one that
is read.

| key | what it does | what may be written | default | backends |
|---|---|---|---|---|
"""


def main() -> None:
    """Bring the page up to date."""
    PAGE.write_text(page())


def page() -> str:
    """The page as it should be."""
    sections = "".join(f"\n## {name}\n\n{_table(rows)}" for name, rows in SECTIONS.items())
    parameters = "".join(map(_parameter, PARAMETERS))
    return _INTRODUCTION + sections + _COMPLETED + _PARAMETERS + parameters


def _table(rows: tuple[ConfigField, ...]) -> str:
    head = "| field | here | | default | backends |\n|---|---|---|---|---|\n"
    return head + "".join(map(_field, rows))


def _field(row: ConfigField) -> str:
    text = row.text if row.support is FieldSupport.HONOURED else f"It {row.text}; {row.instead}"
    below = ", ".join(f"`{name}`" for name in below_path(row.path)) if row.covers else ""
    if below and row.support is not FieldSupport.HONOURED:
        text += f". So are its {below}"
    return _row(f"`{row.path}`", row.support, text, row.default, _backends(row.backends))


def _parameter(row: ParameterKey) -> str:
    if row.support is FieldSupport.HONOURED:
        text, allowed = row.text, row.allowed
    else:
        text, allowed = f"{row.support}: it {row.text}; {row.instead}", ""
    return _row(f"`{row.key}`", text, allowed, row.default, _backends(row.backends))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _backends(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def below_path(path: str) -> list[str]:
    """The names of the fields below a field, each once, at any depth."""
    descriptor: Any = ModelConfig.DESCRIPTOR
    for step in path.split("."):
        descriptor = value_type(descriptor.fields_by_name[step])
    return list(dict.fromkeys(name.rpartition(".")[2] for name in paths(descriptor)))


def paths(descriptor: Any, prefix: str = "") -> Iterator[str]:
    """Every field of a message and below it, without indexes: "input.reshape.shape"."""
    if descriptor is None:
        return
    for field in descriptor.fields:
        yield f"{prefix}{field.name}"
        yield from paths(value_type(field), f"{prefix}{field.name}.")


def value_type(field: Any) -> Any:
    """The message that a field holds, of a map its values'; None for numbers and text."""
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return kind.fields_by_name["value"].message_type
    return kind


if __name__ == "__main__":
    main()
