"""What is asked of a checking process, and what it answers."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec

from repository.code_use import CodeUse
from repository.model import ModelConfig, ModelVersion

MOST_ANSWER_BYTES = 1 << 26
"""Of a config as completed, or the reason why there is none."""
_MOST_USES = 64


class ConfigCompletion(msgspec.Struct, frozen=True):
    """How much of a config is filled in: nothing if not `fill`, and the `max_batch_size` of a
    model that can batch and whose config does not say (Triton's default is 4)."""

    fill: bool = True
    default_max_batch: int = 4


class CheckKind(StrEnum):
    """What is asked of a version."""

    CONFIG = "config"
    CODE = "code"


class CheckRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Look at one version. `config`: as written, in protobuf's form. `memory_bytes`: what a check
    may take beside what its files do; `machine_bytes`: what the machine has, 0 if not known."""

    kind: CheckKind
    name: str
    number: int
    folder: str
    path: str
    config: bytes
    digest: str
    deadline_s: float
    rules: ConfigCompletion
    memory_bytes: int
    machine_bytes: int

    @property
    def version(self) -> ModelVersion:
        return ModelVersion(
            name=self.name,
            number=self.number,
            folder=Path(self.folder),
            path=Path(self.path),
            config=ModelConfig.FromString(self.config),
            digest=self.digest,
        )


class CompletedConfig(msgspec.Struct, frozen=True, tag="config"):
    """In protobuf's form."""

    config: bytes


class CodeFound(msgspec.Struct, frozen=True, tag="code"):
    """The code that serving the version would run."""

    uses: Annotated[tuple[CodeUse, ...], msgspec.Meta(max_length=_MOST_USES)]


class CheckRefused(msgspec.Struct, frozen=True, tag="refused"):
    """The version cannot be served, or not be read. `is_bug`: the fault is ours."""

    reason: str
    is_bug: bool = False


CheckAnswer = CompletedConfig | CodeFound | CheckRefused

_encoder = msgspec.msgpack.Encoder()
_requests = msgspec.msgpack.Decoder(CheckRequest)
_answers: msgspec.msgpack.Decoder[CheckAnswer] = msgspec.msgpack.Decoder(CheckAnswer)


def encode(message: CheckRequest | CheckAnswer) -> bytes:
    return _encoder.encode(message)


def decode_request(payload: bytes) -> CheckRequest:
    return _requests.decode(payload)


def decode_answer(payload: bytes) -> CheckAnswer:
    """Raises ValueError (msgspec.DecodeError) for anything else: a file may have taken over the
    process that answers."""
    return _answers.decode(payload)
