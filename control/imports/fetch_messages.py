"""What an importer and the process that fetches send each other."""

import msgspec

from repository.sources.limits import FetchLimits
from repository.sources.progress import Progress

MOST_MESSAGE_BYTES = 1 << 20


class FetchCommand(msgspec.Struct, frozen=True):
    """What to fetch, the first message. `folder` is that import's alone; `digest` "" for any."""

    url: str
    allowed: tuple[str, ...]
    folder: str
    digest: str
    limits: FetchLimits


class FetchProgress(msgspec.Struct, frozen=True, tag="progress"):
    """How far it is."""

    progress: Progress


class FetchSucceeded(msgspec.Struct, frozen=True, tag="done"):
    """It lies in the folder `whole`, and has this digest."""

    digest: str


class FetchRefused(msgspec.Struct, frozen=True, tag="refused"):
    """It cannot be had; `reason` is meant for who gave the URL."""

    reason: str


FetchReport = FetchProgress | FetchSucceeded | FetchRefused
"""Any number of the first, and then one of the others."""

_reports: msgspec.msgpack.Decoder[FetchReport] = msgspec.msgpack.Decoder(FetchReport)
_commands = msgspec.msgpack.Decoder(FetchCommand)


def encode(message: FetchCommand | FetchReport) -> bytes:
    return msgspec.msgpack.encode(message)


def decode_command(payload: bytes) -> FetchCommand:
    return _commands.decode(payload)


def decode_report(payload: bytes) -> FetchReport:
    """Raises ValueError (msgspec.DecodeError) for anything else."""
    return _reports.decode(payload)
