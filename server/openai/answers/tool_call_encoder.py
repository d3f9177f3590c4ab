"""Answers of a chat whose model may call tools: text and calls, whole or in pieces. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from backends.llm.tools.formats import ToolFormat
from backends.llm.tools.scanner import (
    ContentText,
    Event,
    ToolCallAborted,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    ToolScanner,
)
from schedulers.llm.generation import Finish, GenerationOutput
from server.openai.answers.choice_encoders import (
    AnswerDelta,
    AnswerMessage,
    ChatChoice,
    ChatChoiceEncoder,
    ChatChunkChoice,
    FunctionCall,
    ToolCall,
)
from server.openai.answers.completion_choice import CompletionChoice
from server.openai.bodies.tools import AllowedTools

CALLED = "tool_calls"
_NOTHING = AnswerDelta()


class ToolCallEncoder:
    """See `server.openai.answers.choice_encoders.ChoiceEncoder`. `seed`: unlike that of any other
    request; the ids of calls are made of it."""

    document, chunk = ChatChoiceEncoder.document, ChatChoiceEncoder.chunk

    def __init__(
        self, plain: ChatChoiceEncoder, format: ToolFormat, calling: AllowedTools, seed: str
    ) -> None:
        self._plain = plain
        self._format = format
        self._calling = calling
        self._seed = seed
        self._scanners: dict[int, ToolScanner] = {}
        self._called: set[int] = set()

    def whole(self, index: int, answer: CompletionChoice) -> ChatChoice:
        scanner = self._scanner()
        events = [*scanner.add(answer.text), *scanner.end()]
        ended = {event.number for event in events if isinstance(event, ToolCallEnd)}
        arguments = _arguments(events)
        calls = [
            self._call(index, event, "".join(arguments.get(event.number, ())))
            for event in events
            if isinstance(event, ToolCallStart) and event.number in ended
        ]
        found = self._plain.whole(index, answer)
        if not calls:
            return found
        text = "".join(event.text for event in events if isinstance(event, ContentText))
        message = AnswerMessage(content=text or None, tool_calls=calls)
        return replace(found, message=message, finish_reason=_finish_reason(answer))

    def opening(self, index: int, answer: CompletionChoice) -> Sequence[ChatChunkChoice]:
        return [ChatChunkChoice(index=index, delta=AnswerDelta(role="assistant", content=None))]

    def pieces(
        self, index: int, answer: CompletionChoice, output: GenerationOutput
    ) -> Sequence[ChatChunkChoice]:
        scanner = self._scanners.setdefault(index, self._scanner())
        events = scanner.add(output.text)
        ends = output.finish is not None
        if ends:
            events += scanner.end()
        if any(isinstance(event, ToolCallEnd) for event in events):
            self._called.add(index)
        deltas = [*self._deltas(index, events)]
        logprobs = self._plain.scored(output)
        last = ChatChunkChoice(
            index=index,
            delta=AnswerDelta() if ends or not deltas else deltas.pop(),
            logprobs=logprobs,
        )
        found = [ChatChunkChoice(index=index, delta=delta) for delta in deltas]
        if ends:
            called = index in self._called
            reason = _finish_reason(answer) if called else answer.finish_reason
            last = replace(last, finish_reason=reason, stop_reason=answer.stopped_by)
        return [*found, last] if last.delta != _NOTHING or logprobs or ends else found

    def _deltas(self, index: int, events: Sequence[Event]) -> Iterator[AnswerDelta]:
        for event in events:
            match event:
                case ContentText(text):
                    yield AnswerDelta(content=text)
                case ToolCallStart(number):
                    yield AnswerDelta(tool_calls=[self._call(index, event, "", number)])
                case ToolCallArguments(number, text):
                    piece = ToolCall(index=number, function=FunctionCall(arguments=text))
                    yield AnswerDelta(tool_calls=[piece])
                case ToolCallEnd() | ToolCallAborted():
                    pass

    def _call(
        self, index: int, call: ToolCallStart, arguments: str, number: int | UnsetType = UNSET
    ) -> ToolCall:
        """`number`: of the call, for a chunk."""
        return ToolCall(
            index=number,
            id=self._id(index, call.number),
            type="function",
            function=FunctionCall(name=call.name, arguments=arguments),
        )

    def _id(self, index: int, number: int) -> str:
        name = f"{self._seed} {index} {number}".encode()
        if self._format.short_ids:
            return blake2b(name, digest_size=5).hexdigest()[:9]
        return f"call_{blake2b(name, digest_size=12).hexdigest()}"

    def _scanner(self) -> ToolScanner:
        most = None if self._calling.many else 1
        return ToolScanner(self._format, self._calling.tools, most)


def _arguments(events: Sequence[Event]) -> Mapping[int, Sequence[str]]:
    """The pieces of each call's arguments, by its number."""
    found: dict[int, list[str]] = {}
    for event in events:
        if isinstance(event, ToolCallArguments):
            found.setdefault(event.number, []).append(event.text)
    return found


def _finish_reason(answer: CompletionChoice) -> str | None:
    """Of an answer with calls that are whole."""
    return CALLED if answer.finish is Finish.STOP else answer.finish_reason
