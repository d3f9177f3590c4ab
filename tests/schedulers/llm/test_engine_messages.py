"""What a gateway and an engine say arrives as it was said."""

import struct

import msgspec
import pytest

from backends.llm.grammar.spec import GrammarSpec
from backends.llm.sampling.params import SamplingParams
from backends.llm.sampling.token_logprobs import TokenLogprobs
from backends.process.messages import encode
from schedulers.llm.engine_messages import (
    Cancel,
    Close,
    Decode,
    Embed,
    EmbedReply,
    Encode,
    EngineOpened,
    EngineStats,
    Grow,
    Message,
    RequestRefused,
    ResizeReply,
    Shrink,
    StepReport,
    Submit,
    TokeniserReply,
    decode,
    pack_tokens,
    unpack_tokens,
)
from schedulers.llm.generation import Finish, GenerateRequest, GenerationOutput

REQUEST = GenerateRequest(
    "a-1",
    (1, 2, 150_000),
    7,
    SamplingParams(0.5, 3, 0.9, 0.1, 1.2, 0.3, 0.4, ((5, -2.0),), 2),
    ("stop", "über"),
    (9, 10),
    2,
    True,
    -(1 << 63),
    1,
    False,
    "ada",
    -3,
    12.5,
    b"\0salt",
    GrammarSpec("json_schema", '{"type": "object"}'),
    ("<tool_call>",),
)
SCORED = TokenLogprobs(-0.5, 0, ((3, -0.5), (4, -1.5)))
OUTPUTS = [
    GenerationOutput("a", 5, "text"),
    GenerationOutput("a", 5, "über", SCORED, Finish.STOP, "stop", "", (SCORED, SCORED), 16),
    GenerationOutput("a", finish=Finish.FAILED, message="why"),
    GenerationOutput("a", 5, stopped_by=2, finish=Finish.STOP),
    GenerationOutput("a", 5, cached_tokens=32),
]
MESSAGES: list[Message] = [
    EngineOpened("compiled", 256, 64, 16, 1, 2, 3, 0, b"\1\0\0\0", b"a"),
    Submit((REQUEST, GenerateRequest("b", (1,), 1))),
    Cancel(("a", "b")),
    Embed("a", (pack_tokens((1, 2)),)),
    Shrink(1 << 40),
    Grow(0),
    ResizeReply(5),
    Close(),
    StepReport(123, ("a",), OUTPUTS, None),
    StepReport(123, (), [], EngineStats(*range(11))),
    RequestRefused("a", "long", "too long"),
    EmbedReply("a", b"\0\0\x80?", ""),
    Encode(1, ("a", "über"), True),
    Decode(2, pack_tokens((1, 2)), False),
    TokeniserReply(1, (pack_tokens((1, 2)),), "", ""),
]


@pytest.mark.parametrize("number", range(len(MESSAGES)))
def test_every_message_arrives_as_it_was_said(number: int) -> None:
    message = MESSAGES[number]
    assert decode(encode(message)) == message
    assert type(decode(encode(message))) is type(message)


def test_half_a_surrogate_pair_arrives_as_the_replacement_character() -> None:
    said = Encode(1, ("a\udcff", "fine \U0001f980"), True)
    assert decode(encode(said)) == Encode(1, ("a\ufffd", "fine \U0001f980"), True)


def test_sampling_parameters_out_of_their_ranges_are_no_message() -> None:
    packed = encode(Submit((REQUEST,))).replace(struct.pack(">d", 0.9), struct.pack(">d", 1.9))
    with pytest.raises(ValueError, match=r"top_p is 1.9; it must be above 0 and at most 1"):
        decode(packed)


def test_tokens_arrive() -> None:
    assert unpack_tokens(pack_tokens((0, 1, (1 << 32) - 1))) == (0, 1, (1 << 32) - 1)


@pytest.mark.parametrize("payload", [b"", b"\x93\x63\x01\x02", b"\xc1", b"\x01"])
def test_what_is_no_message_is_an_error(payload: bytes) -> None:
    with pytest.raises((ValueError, TypeError, IndexError)):
        decode(payload)


def test_bytes_beside_half_a_surrogate_pair_stay_bytes() -> None:
    request = msgspec.structs.replace(REQUEST, stop=("\ud800",), salt=b"\xff\x00")
    (arrived,) = decode(encode(Submit((request,)))).requests
    assert (arrived.stop, arrived.salt) == (("\ufffd",), b"\xff\x00")
