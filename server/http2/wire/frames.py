"""HTTP/2 frames (RFC 9113, section 6): their numbers, their bytes, their faults. Pure."""

from enum import IntEnum
from struct import Struct

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = range(5)
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(5, 10)

END_STREAM = ACK = 0x01
END_HEADERS = 0x04
PADDED = 0x08
PRIORITISED = 0x20

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES = 9
HEAD = Struct(">BHBBI")
"""Length (8 + 16 bits), kind, flags, stream."""
MAX_ID = MAX_WINDOW = (1 << 31) - 1
DEFAULT_WINDOW = 65_535
DEFAULT_FRAME_BYTES = 16_384

_WORD = Struct(">I")
_SETTING = Struct(">HI")
_LARGEST_FRAME_BYTES = (1 << 24) - 1


class ErrorCode(IntEnum):
    """Why a stream or a connection ended."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    ENHANCE_YOUR_CALM = 0xB


class Http2Setting(IntEnum):
    """The settings that mean something to us."""

    HEADER_TABLE_SIZE = 0x1
    ENABLE_PUSH = 0x2
    MAX_CONCURRENT_STREAMS = 0x3
    INITIAL_WINDOW_SIZE = 0x4
    MAX_FRAME_SIZE = 0x5
    MAX_HEADER_LIST_SIZE = 0x6


class ConnectionFault(Exception):
    """The peer broke the protocol: the connection ends with GOAWAY and this code."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class StreamFault(Exception):
    """The peer broke one stream: it ends with RST_STREAM and this code."""

    def __init__(self, stream_id: int, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.stream_id = stream_id
        self.code = code


# read


def without_padding(flags: int, payload: bytes) -> bytes:
    """What a DATA or HEADERS frame carries between its padding length and its padding."""
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "padding longer than its frame")
    return payload[1 : len(payload) - payload[0]]


def block_of(flags: int, payload: bytes) -> bytes:
    """The header block in a HEADERS frame. Raises ConnectionFault."""
    payload = without_padding(flags, payload)
    if not flags & PRIORITISED:
        return payload
    if len(payload) < 5:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "HEADERS too short for its priority")
    return payload[5:]


def word_of(payload: bytes, kind: str) -> int:
    """The one number of a RST_STREAM or WINDOW_UPDATE frame. Raises ConnectionFault."""
    if len(payload) != 4:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"{kind} of {len(payload)} bytes, not 4")
    word: int = _WORD.unpack(payload)[0]
    return word


def settings_of(payload: bytes) -> list[tuple[int, int]]:
    """(setting, value) in order. Raises ConnectionFault for values out of their range."""
    if len(payload) % _SETTING.size:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"SETTINGS of {len(payload)} bytes")
    pairs: list[tuple[int, int]] = list(_SETTING.iter_unpack(payload))
    for setting, value in pairs:
        if setting == Http2Setting.ENABLE_PUSH and value > 1:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"ENABLE_PUSH {value}")
        if setting == Http2Setting.INITIAL_WINDOW_SIZE and value > MAX_WINDOW:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, f"INITIAL_WINDOW_SIZE {value}")
        in_range = DEFAULT_FRAME_BYTES <= value <= _LARGEST_FRAME_BYTES
        if setting == Http2Setting.MAX_FRAME_SIZE and not in_range:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"MAX_FRAME_SIZE {value}")
    return pairs


# written


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    size = len(payload)
    return HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, stream_id) + payload


def rst_stream(stream_id: int, code: ErrorCode) -> bytes:
    return frame(RST_STREAM, 0, stream_id, _WORD.pack(code))


def goaway(last_id: int, code: ErrorCode, text: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, _WORD.pack(last_id) + _WORD.pack(code) + text.encode())


def window_update(stream_id: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream_id, _WORD.pack(increment))


def settings(pairs: dict[Http2Setting, int]) -> bytes:
    payload = b"".join(_SETTING.pack(setting, value) for setting, value in pairs.items())
    return frame(SETTINGS, 0, 0, payload)
