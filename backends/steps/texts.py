"""The step `text`: texts in, the token ids that a language encoder takes out.

TEXT BYTES [1], UTF-8, and optionally TEXT_PAIR BYTES [1] → input_ids, attention_mask and
token_type_ids, INT64 or INT32 [tokens], named as Hugging Face's exports name them.
"""

import os
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer
from tritonclient.grpc import model_config_pb2 as pb

from backends.artefact import Artefact, TensorDescription, inside, refuse, require_cpu
from backends.errors import ExecutionFailed
from backends.seam import Device, LoadedInstances, Tensors
from backends.steps.step import StepInstance, complete_step, settings_of
from repository.config.tensors import BY_CONFIG, Array
from repository.model import ModelConfig, ModelVersion

TEXT, PAIR = "TEXT", "TEXT_PAIR"
IDS, MASK, TYPES = "input_ids", "attention_mask", "token_type_ids"
MOST_FILE_BYTES = 1 << 28
_WIDTHS = (pb.TYPE_INT64, pb.TYPE_INT32)
_PADS = ("[PAD]", "<pad>", "</s>", "<|endoftext|>")

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # a step has one core


class TextSettings(NamedTuple):
    """`pad`: the token that fills up, by its number, and `pad_token`, by its text. Other fields as
    the parameters of their names."""

    max_length: int
    padding: str
    padding_side: str
    pad_token: str
    pad: int
    truncation: bool
    special_tokens: bool
    max_bytes: int


class Texts:
    """The backend `text`."""

    def complete(self, version: ModelVersion, default_max_batch: int) -> ModelConfig:
        """See `backends.seam.Backend`; reads the tokenizer, encodes nothing."""
        settings, _ = _opened(version)
        length = settings.max_length if settings.padding == "max_length" else -1
        written = {tensor.name: tensor.data_type for tensor in version.config.output}
        outputs = []
        for name in (IDS, MASK, TYPES):
            data_type = written.get(name) or pb.TYPE_INT64
            if data_type not in _WIDTHS:
                shown = pb.DataType.Name(data_type)
                refuse(version, f"output '{name}' is {shown}; it must be TYPE_INT64 or TYPE_INT32")
            outputs.append(TensorDescription(name, data_type, (-1, length)))
        inputs = (
            TensorDescription(TEXT, pb.TYPE_STRING, (-1, 1)),
            TensorDescription(PAIR, pb.TYPE_STRING, (-1, 1), optional=True),
        )
        artefact = Artefact("the backend 'text'", inputs, tuple(outputs))
        return complete_step(version, "text", artefact, default_max_batch)

    def load(self, version: ModelVersion, device: Device, count: int) -> LoadedInstances:
        """`count` instances, each with a tokenizer of its own: one that is shared by threads
        raises "Already borrowed". Raises LoadFailed."""
        require_cpu(version, device, "the backend 'text'")
        instances = [TextInstance(version, device, *_opened(version)) for _ in range(count)]
        return LoadedInstances(instances, version.config)


def _opened(version: ModelVersion) -> tuple[TextSettings, Any]:
    found = settings_of(version, "text")
    path = inside(version, found["tokenizer"], "parameter tokenizer")
    if not path.is_file():
        has = ", ".join(sorted(entry.name for entry in version.path.iterdir())) or "nothing"
        refuse(version, f"no {path.name} in folder {version.path.name}/, which holds {has}")
    if path.stat().st_size > MOST_FILE_BYTES:
        refuse(version, f"{path.name} is larger than {MOST_FILE_BYTES >> 20} MiB")
    try:
        tokenizer = Tokenizer.from_file(str(path))
        stored = (tokenizer.padding or {}).get("pad_token")
        tokenizer.no_padding()
        tokenizer.no_truncation()
        around = tokenizer.num_special_tokens_to_add(True)
    except BaseException as error:  # noqa: BLE001 (the binding raises Exception, or panics)
        refuse(version, f"{path.name} is not a tokenizer: {error}")
    token, pad = _pad(version, found["pad_token"], stored, tokenizer)
    settings = TextSettings(
        max_length=found["max_length"],
        padding=found["padding"],
        padding_side=found["padding_side"],
        pad_token=token,
        pad=pad,
        truncation=found["truncation"],
        special_tokens=found["special_tokens"],
        max_bytes=found["max_bytes"],
    )
    if settings.truncation:
        added = around if settings.special_tokens else 0
        if settings.max_length <= added:
            refuse(
                version,
                f"parameter max_length is {settings.max_length}, but {added} tokens are added "
                "around a pair of texts; it must be more",
            )
        tokenizer.enable_truncation(settings.max_length)
    return settings, tokenizer


def _pad(
    version: ModelVersion, named: str | None, stored: str | None, tokenizer: Any
) -> tuple[str, int]:
    names = (named,) if named else (stored, *_PADS)
    for name in names:
        if name and (number := tokenizer.token_to_id(name)) is not None:
            return name, int(number)
    if named:
        refuse(version, f"parameter pad_token is '{named}', which the tokenizer does not have")
    none = f"the tokenizer has none of {', '.join(_PADS)} to fill rows up with"
    return refuse(version, f"{none}; name a token of its own with the parameter pad_token")


class TextInstance(StepInstance):
    """Encodes texts; `tokenizer` cuts them off where that is wanted."""

    def __init__(
        self, version: ModelVersion, device: Device, settings: TextSettings, tokenizer: Any
    ) -> None:
        super().__init__(version, device.threads)
        self._settings = settings
        self._tokenizer = tokenizer
        self._types = {
            tensor.name: BY_CONFIG[tensor.data_type].dtype for tensor in version.config.output
        }

    def run(self, inputs: Tensors, wanted: tuple[str, ...]) -> Tensors:
        rows: list[Any] = self._texts(inputs[TEXT], TEXT)
        if (pairs := inputs.get(PAIR)) is not None:
            rows = list(zip(rows, self._texts(pairs, PAIR), strict=True))
        encodings = self._encoded(rows)
        lengths = [len(encoding.ids) for encoding in encodings]
        self._check_lengths(lengths)
        most = self._settings.max_length
        width = most if self._settings.padding == "max_length" else max(lengths, default=0)
        found: dict[str, Array] = {}
        for name, attribute, filler in (
            (IDS, "ids", self._settings.pad),
            (MASK, "attention_mask", 0),
            (TYPES, "type_ids", 0),
        ):
            if name in wanted:
                values = [getattr(encoding, attribute) for encoding in encodings]
                found[name] = self._filled(values, width, filler, self._types[name])
        return found

    def _encoded(self, rows: list[Any]) -> Any:
        # Only the calls for batches let other threads run.
        special = self._settings.special_tokens
        try:
            return self._tokenizer.encode_batch_fast(rows, add_special_tokens=special)
        except Exception as error:  # noqa: BLE001 (the binding raises plain Exception)
            raise self.refused(f"its tokenizer cannot read {TEXT}: {error}") from None
        except BaseException as error:  # noqa: BLE001 (a panic is no Exception)
            raise ExecutionFailed(f"{self._where}: its tokenizer panicked: {error}") from None

    def _filled(
        self, rows: list[list[int]], width: int, filler: int, dtype: np.dtype[Any]
    ) -> Array:
        array = np.full((len(rows), width), filler, dtype)
        for number, row in enumerate(rows):
            if self._settings.padding_side == "right":
                array[number, : len(row)] = row
            else:
                array[number, width - len(row) :] = row
        return array

    def _texts(self, elements: Array, name: str) -> list[str]:
        found = []
        for number, element in enumerate(elements.reshape(-1)):
            place = f"row {number} of {name}" if len(elements) > 1 else name
            try:
                data = element.encode() if isinstance(element, str) else element
                if len(data) > self._settings.max_bytes:
                    raise self.refused(
                        f"{place} has {len(data)} bytes, more than the {self._settings.max_bytes} "
                        "allowed"
                    )
                found.append(data.decode())
            except UnicodeError as error:
                raise self.refused(f"{place} is not UTF-8: {error}") from None
        return found

    def _check_lengths(self, lengths: list[int]) -> None:
        longest, most = max(lengths, default=0), self._settings.max_length
        if longest > most:
            number = lengths.index(longest)
            place = f"row {number} of {TEXT}" if len(lengths) > 1 else TEXT
            raise self.refused(
                f"{place} has {longest} tokens, more than max_length {most}, and truncation is off"
            )
