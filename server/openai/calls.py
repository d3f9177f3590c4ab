"""Answers of a chat whose model may call tools: text and calls, whole or in pieces. Pure."""

from collections.abc import Iterator, Sequence
from hashlib import blake2b

from backends.llm.tool_formats import ToolFormat
from backends.llm.tool_scanner import (
    Argued,
    Called,
    Dropped,
    Ended,
    Event,
    Said,
    ToolScanner,
)
from schedulers.llm.generation import Output
from schedulers.llm.request import Finish
from server.openai.answer import Answer
from server.openai.forms import ChatForm, Json
from server.openai.tools import Calling

CALLED = "tool_calls"


class CallsForm:
    """See `server.openai.forms.Form`. `seed`: unlike that of any other request; the ids of calls
    are made of it."""

    kind, chunk_kind = ChatForm.kind, ChatForm.chunk_kind

    def __init__(self, plain: ChatForm, format: ToolFormat, calling: Calling, seed: str) -> None:
        self._plain = plain
        self._format = format
        self._calling = calling
        self._seed = seed
        self._scanners: dict[int, ToolScanner] = {}
        self._called: set[int] = set()

    def whole(self, index: int, answer: Answer) -> Json:
        scanner = self._scanner()
        events = [*scanner.add(answer.text), *scanner.end()]
        calls: dict[int, Json] = {}
        whole = {event.number for event in events if isinstance(event, Ended)}
        for event in events:
            if isinstance(event, Called) and event.number in whole:
                calls[event.number] = self._call(index, event)
            elif isinstance(event, Argued) and event.number in whole:
                calls[event.number]["function"]["arguments"] += event.text
        found = self._plain.whole(index, answer)
        if calls:
            said = "".join(event.text for event in events if isinstance(event, Said))
            found["message"] |= {"content": said or None, "tool_calls": [*calls.values()]}
            found["finish_reason"] = _finish_reason(answer)
        return found

    def opening(self, index: int, answer: Answer) -> Sequence[Json]:
        return [self._plain.choice(index, {"role": "assistant", "content": None})]

    def pieces(self, index: int, answer: Answer, output: Output) -> Sequence[Json]:
        scanner = self._scanners.setdefault(index, self._scanner())
        events = scanner.add(output.text)
        if output.finish is not None:
            events += scanner.end()
        if any(isinstance(event, Ended) for event in events):
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
                case Said(text):
                    yield {"content": text}
                case Called(number):
                    yield {"tool_calls": [{"index": number} | self._call(index, event)]}
                case Argued(number, text):
                    yield {"tool_calls": [{"index": number, "function": {"arguments": text}}]}
                case Ended() | Dropped():
                    pass

    def _call(self, index: int, call: Called) -> Json:
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


def _finish_reason(answer: Answer) -> str | None:
    """Of an answer with calls that are whole."""
    return CALLED if answer.finish is Finish.STOP else answer.finish_reason
