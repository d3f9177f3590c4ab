"""The messages of a job's process: JSON lines from a pipe, decoded and bounded. Pure."""

import msgspec

from control.jobs.messages import MOST_LINE_BYTES, Finished, Message, Refused
from control.jobs.policy.report_bounds import bounded

MOST_BYTES = 256 << 20
"""All messages of one process together."""


class BadMessage(Exception):
    """The process does not keep to the protocol; its text is the end of a sentence about it."""


class MessageReader:
    """Cuts a stream into messages. `last` is the message that ended the work, or None."""

    def __init__(self) -> None:
        self.last: Finished | Refused | None = None
        self.total_bytes = 0
        self._rest = bytearray()
        self._decoder = msgspec.json.Decoder(Message)

    @property
    def has_half_line(self) -> bool:
        """Whether the stream stopped within a message."""
        return bool(self._rest)

    def feed(self, chunk: bytes) -> list[Message]:
        """The messages that end in `chunk`. Raises BadMessage."""
        self.total_bytes += len(chunk)
        if self.total_bytes > MOST_BYTES:
            raise BadMessage(f"sent more than {MOST_BYTES} bytes of messages")
        self._rest += chunk
        if b"\n" not in chunk:
            self._check_length(len(self._rest))
            return []
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        self._check_length(len(rest))
        return [self._message(line) for line in lines]

    def _message(self, line: bytes) -> Message:
        self._check_length(len(line))
        if self.last is not None:
            raise BadMessage("sent a message after its last one")
        try:
            message: Message = self._decoder.decode(line)
            if isinstance(message, Finished):
                message = Finished(bounded(message.report))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            shown = line[:80].decode("utf-8", "replace")
            raise BadMessage(f"sent a message that cannot be read ({error}): {shown!r}") from error
        if isinstance(message, Finished | Refused):
            self.last = message
        return message

    def _check_length(self, length: int) -> None:
        if length > MOST_LINE_BYTES:
            raise BadMessage(f"sent a message of more than {MOST_LINE_BYTES} bytes")
