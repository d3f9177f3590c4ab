"""Answers of a chat whose model may call tools: text and calls, whole or in pieces. Pure."""

from collections.abc import Iterator, Sequence
from hashlib import blake2b

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
from schedulers.llm.generation import GenerationOutput
from schedulers.llm.request import Finish
from server.openai.choice_encoders import ChatChoiceEncoder, Json
from server.openai.completion_choice import CompletionChoice
from server.openai.tools import AllowedTools

CALLED = "tool_calls"


class ToolCallEncoder:
    """See `server.openai.choice_encoders.ChoiceEncoder`. `seed`: unlike that of any other request;
    the ids of calls are made of it."""

    kind, chunk_kind = ChatChoiceEncoder.kind, ChatChoiceEncoder.chunk_kind

    def __init__(
        self, plain: ChatChoiceEncoder, format: ToolFormat, calling: AllowedTools, seed: str
    ) -> None:
        self._plain = plain
        self._format = format
        self._calling = calling
        self._seed = seed
        self._scanners: dict[int, ToolScanner] = {}
        self._called: set[int] = set()

    def whole(self, index: int, answer: CompletionChoice) -> Json:
        scanner = self._scanner()
        events = [*scanner.add(answer.text), *scanner.end()]
        calls: dict[int, Json] = {}
        whole = {event.number for event in events if isinstance(event, ToolCallEnd)}
        for event in events:
            if isinstance(event, ToolCallStart) and event.number in whole:
                calls[event.number] = self._call(index, event)
            elif isinstance(event, ToolCallArguments) and event.number in whole:
                calls[event.number]["function"]["arguments"] += event.text
        found = self._plain.whole(index, answer)
        if calls:
            said = "".join(event.text for event in events if isinstance(event, ContentText))
            found["message"] |= {"content": said or None, "tool_calls": [*calls.values()]}
            found["finish_reason"] = _finish_reason(answer)
        return found

    def opening(self, index: int, answer: CompletionChoice) -> Sequence[Json]:
        return [self._plain.choice(index, {"role": "assistant", "content": None})]

    def pieces(
        self, index: int, answer: CompletionChoice, output: GenerationOutput
    ) -> Sequence[Json]:
        scanner = self._scanners.setdefault(index, self._scanner())
        events = scanner.add(output.text)
        if output.finish is not None:
            events += scanner.end()
        if any(isinstance(event, ToolCallEnd) for event in events):
            self._called.add(index)
        deltas = [*self._deltas(index, events)]
        ends = output.finish is not None
        last = self._plain.choice(index, {} if ends or not deltas else deltas.pop(), output)
        found = [self._plain.choice(index, delta) for delta in deltas]
        if ends:
            called = index in self._called
            last["finish_reason"] = _finish_reason(answer) if called else answer.finish_reason
            last["stop_reason"] = answer.stopped_by
        return [*found, last] if last["delta"] or last["logprobs"] or ends else found

    def _deltas(self, index: int, events: Sequence[Event]) -> Iterator[Json]:
        for event in events:
            match event:
                case ContentText(text):
                    yield {"content": text}
                case ToolCallStart(number):
                    yield {"tool_calls": [{"index": number} | self._call(index, event)]}
                case ToolCallArguments(number, text):
                    yield {"tool_calls": [{"index": number, "function": {"arguments": text}}]}
                case ToolCallEnd() | ToolCallAborted():
                    pass

    def _call(self, index: int, call: ToolCallStart) -> Json:
        function = {"name": call.name, "arguments": ""}
        return {"id": self._id(index, call.number), "type": "function", "function": function}

    def _id(self, index: int, number: int) -> str:
        name = f"{self._seed} {index} {number}".encode()
        if self._format.short_ids:
            return blake2b(name, digest_size=5).hexdigest()[:9]
        return f"call_{blake2b(name, digest_size=12).hexdigest()}"

    def _scanner(self) -> ToolScanner:
        most = None if self._calling.many else 1
        return ToolScanner(self._format, self._calling.tools, most)


def _finish_reason(answer: CompletionChoice) -> str | None:
    """Of an answer with calls that are whole."""
    return CALLED if answer.finish is Finish.STOP else answer.finish_reason
