"""A model's config as python models see it: a plain dictionary they may complete.

`ModelConfig` here is the `pb_utils.ModelConfig` of `auto_complete_config`; its complaints are
Triton's (`python_backend`, `triton_python_backend_utils.py`).
"""

import json
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import Message

from backends.errors import LoadFailed
from repository.model import ModelConfig as ConfigMessage
from repository.model import ModelVersion

Config = dict[str, Any]

_WIDE = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
_INPUT_PROPERTIES = ("name", "data_type", "dims", "optional", "allow_ragged_batch")
_OUTPUT_PROPERTIES = ("name", "data_type", "dims")
_REQUIRED_PROPERTIES = ("name", "data_type", "dims")


def to_dictionary(config: ConfigMessage) -> Config:
    """Every plain field, also those at their default; field names as in config.pbtxt; integers
    as numbers (protobuf's own JSON writes 64-bit ones as strings)."""
    dictionary: Config = MessageToDict(
        config, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    _numbers(config, dictionary)
    return dictionary


def from_dictionary(version: ModelVersion, dictionary: Config) -> ConfigMessage:
    """The config a model completed. Raises `LoadFailed` when it is none, or another model's."""
    try:
        config: ConfigMessage = ParseDict(dictionary, ConfigMessage())
    except ParseError as error:
        raise LoadFailed(
            f"model '{version.name}' version {version.number}: auto_complete_config made an "
            f"invalid config: {error}"
        ) from error
    if config.name != version.name:
        raise LoadFailed(
            f"model '{version.name}' version {version.number}: auto_complete_config changed the "
            f"name to '{config.name}'"
        )
    return config


def _numbers(message: Message, dictionary: Config) -> None:
    for name in dictionary:
        field = message.DESCRIPTOR.fields_by_name[name]
        value = getattr(message, name)
        if field.cpp_type in _WIDE:
            dictionary[name] = list(value) if field.is_repeated else value
        elif field.message_type is None:
            continue
        elif field.message_type.GetOptions().map_entry:
            _map_numbers(value, dictionary[name])
        elif field.is_repeated:
            for inner, copy in zip(value, dictionary[name], strict=True):
                _numbers(inner, copy)
        else:
            _numbers(value, dictionary[name])


def _map_numbers(messages: Any, dictionary: Config) -> None:
    for key, value in messages.items():
        if isinstance(value, Message):
            _numbers(value, dictionary[str(key)])
        elif isinstance(value, int) and not isinstance(value, bool):
            dictionary[str(key)] = value


class ModelConfig:
    """The config a model completes; every method raises `ValueError` on a contradiction."""

    def __init__(self, model_config: str) -> None:
        """`model_config`: the config as JSON text."""
        self._model_config: Config = json.loads(model_config)

    def as_dict(self) -> Config:
        """The config as it stands."""
        return self._model_config

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Set the largest batch; must not be below what config.pbtxt says."""
        written = self._model_config["max_batch_size"]
        if written > max_batch_size:
            raise ValueError(
                f"configuration specified max_batch_size {written}, but in auto-complete-config "
                f"function for model '{self._name}' specified max_batch_size {max_batch_size}"
            )
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        """Batch dynamically; contradicts any other scheduler."""
        for other in ("sequence_batching", "ensemble_scheduling"):
            if other in self._model_config:
                raise ValueError(
                    f"Configuration specified scheduling_choice as '{other}', but "
                    f"auto-complete-config function for model '{self._name}' tries to set "
                    "scheduling_choice as 'dynamic_batching'"
                )
        self._model_config.setdefault("dynamic_batching", {})

    def set_model_transaction_policy(self, transaction_policy_dict: Config) -> None:
        """Set `decoupled`; must not contradict config.pbtxt."""
        if any(name != "decoupled" for name in transaction_policy_dict):
            raise ValueError(
                "model transaction property in auto-complete-config function for model "
                f"'{self._name}' contains property other than 'decoupled'."
            )
        policy = self._model_config.setdefault("model_transaction_policy", {})
        for name, value in transaction_policy_dict.items():
            if policy.get(name, value) != value:
                raise ValueError(
                    "trying to change decoupled property in auto-complete-config for model "
                    f"'{self._name}', which is already set to '{policy[name]}'."
                )
            policy[name] = value

    def add_input(self, input: Config) -> None:
        """Add an input: name, data_type ("TYPE_FP32"), dims; optional, allow_ragged_batch."""
        self._add("input", input, _INPUT_PROPERTIES)

    def add_output(self, output: Config) -> None:
        """Add an output: name, data_type ("TYPE_FP32"), dims."""
        self._add("output", output, _OUTPUT_PROPERTIES)

    @property
    def _name(self) -> str:
        return str(self._model_config["name"])

    def _add(self, kind: str, tensor: Config, allowed: tuple[str, ...]) -> None:
        self._check_properties(kind, tensor, allowed)
        tensors = self._model_config.setdefault(kind, [])
        for written in tensors:
            if written["name"] == tensor["name"]:
                self._check_same(kind, written, tensor)
                written.update(tensor)
                return
        tensors.append(tensor)

    def _check_properties(self, kind: str, tensor: Config, allowed: tuple[str, ...]) -> None:
        called = f"{kind} '{tensor['name']}'" if "name" in tensor else kind
        where = f"{called} in auto-complete-config function for model '{self._name}'"
        if any(name not in allowed for name in tensor):
            names = ", ".join(f"'{name}'" for name in allowed[:-1])
            raise ValueError(f"{where} contains property other than {names} and '{allowed[-1]}'.")
        for name in _REQUIRED_PROPERTIES:
            if name not in tensor:
                raise ValueError(f"{where} is missing '{name}' property.")

    def _check_same(self, kind: str, written: Config, tensor: Config) -> None:
        name = tensor["name"]
        if written.get("data_type", "TYPE_INVALID") not in ("TYPE_INVALID", tensor["data_type"]):
            raise ValueError(
                f"unable to load model '{self._name}', configuration expects datatype "
                f"{written['data_type']} for {kind} '{name}', model provides {tensor['data_type']}"
            )
        if written.get("dims") and list(written["dims"]) != list(tensor["dims"]):
            raise ValueError(
                f"model '{self._name}', tensor '{name}': the model expects dims {tensor['dims']} "
                f"but the model configuration specifies dims {written['dims']}"
            )
        if written.get("optional") and not tensor.get("optional", True):
            raise ValueError(
                f"model '{self._name}', tensor '{name}': the model expects optional "
                f"{tensor['optional']} but the model configuration specifies optional True"
            )
