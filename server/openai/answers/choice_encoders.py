"""How answers are written: whole, or in pieces, as a chat's or as a text's completion. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from schedulers.llm.generation import GenerationOutput
from server.openai.answers.completion_choice import CompletionChoice, CompletionUsage, usage
from server.openai.answers.logprobs import (
    ChatLogprobs,
    PromptLogprob,
    TextLogprobs,
    chat_logprobs,
    prompt_logprobs,
    text_logprobs,
)

if TYPE_CHECKING:
    from schedulers.llm.gateway.engine_tokeniser import EngineTokeniser

StopReason = str | int | None
PromptLogprobs = list[dict[str, PromptLogprob] | None]


class FunctionCall(msgspec.Struct, frozen=True, kw_only=True):
    """A function that is to be called; a chunk has its name, or a piece of its arguments."""

    name: str | UnsetType = UNSET
    arguments: str


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call; the chunks of a stream say which by `index`, and the first has `id` and `type`."""

    index: int | UnsetType = UNSET
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
    function: FunctionCall


class AnswerMessage(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of a chat."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    tool_calls: list[ToolCall] | UnsetType = UNSET


class AnswerDelta(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of an answer of a chat."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a chat."""

    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: StopReason
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of one answer of a chat; the last has a reason."""

    index: int
    delta: AnswerDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: StopReason | UnsetType = UNSET


class TextChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A text that goes on, or a piece of one."""

    index: int
    text: str
    logprobs: TextLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: StopReason | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of a chat."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: CompletionUsage


class ChatCompletionChunk(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a chat's answers."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChunkChoice]
    usage: CompletionUsage | UnsetType | None = UNSET


class TextCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """Texts that go on, or an event of them."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoice]
    usage: CompletionUsage | UnsetType | None = UNSET


ChunkChoice = ChatChunkChoice | TextChoice
CompletionDocument = ChatCompletion | ChatCompletionChunk | TextCompletion


@dataclass(frozen=True, slots=True)
class DocumentHeader:
    """What every document of an answer begins with."""

    id: str
    model: str
    created: int
    fingerprint: str

    def document(
        self,
        kind: type[CompletionDocument],
        choices: Sequence[ChatChoice | ChunkChoice],
        counts: CompletionUsage | UnsetType | None,
    ) -> CompletionDocument:
        """`choices`: those of `kind`."""
        return kind(
            id=self.id,
            created=self.created,
            model=self.model,
            system_fingerprint=self.fingerprint,
            choices=choices,  # type: ignore[arg-type]
            usage=counts,  # type: ignore[arg-type]
        )


class ChoiceEncoder(Protocol):
    """The choices of one endpoint's documents: `document`, and `chunk` where it is streamed."""

    @property
    def document(self) -> type[ChatCompletion] | type[TextCompletion]: ...

    @property
    def chunk(self) -> type[ChatCompletionChunk] | type[TextCompletion]: ...

    def whole(self, index: int, answer: CompletionChoice) -> ChatChoice | TextChoice:
        """An answer that has ended, as a choice."""

    def opening(self, index: int, answer: CompletionChoice) -> Sequence[ChunkChoice]:
        """What stands before an answer's first piece; it has just begun."""

    def pieces(
        self, index: int, answer: CompletionChoice, output: GenerationOutput
    ) -> Sequence[ChunkChoice]:
        """What an output adds."""


def whole(
    form: ChoiceEncoder, head: DocumentHeader, answers: Sequence[CompletionChoice], count: int
) -> CompletionDocument:
    """The document of answers that have ended; `count` of them to each prompt."""
    choices = [form.whole(index, answer) for index, answer in enumerate(answers)]
    return head.document(form.document, choices, usage(answers, count))


class ChatChoiceEncoder:
    """Chat completions. `logprobs`: None for none, else how many likeliest beside each token."""

    document, chunk = ChatCompletion, ChatCompletionChunk

    def __init__(
        self, tokeniser: "EngineTokeniser", logprobs: int | None, prompt_scores: int | None
    ) -> None:
        self._tokeniser = tokeniser
        self._logprobs = logprobs
        self._prompt_scores = prompt_scores

    def whole(self, index: int, answer: CompletionChoice) -> ChatChoice:
        return ChatChoice(
            index=index,
            message=AnswerMessage(content=answer.text),
            logprobs=self._scored(answer.scores),
            finish_reason=answer.finish_reason,
            stop_reason=answer.stopped_by,
            prompt_logprobs=_prompt_scores(self._tokeniser, answer, self._prompt_scores),
        )

    def opening(self, index: int, answer: CompletionChoice) -> Sequence[ChatChunkChoice]:
        return [ChatChunkChoice(index=index, delta=AnswerDelta(role="assistant", content=""))]

    def pieces(
        self, index: int, answer: CompletionChoice, output: GenerationOutput
    ) -> Sequence[ChatChunkChoice]:
        logprobs = self.scored(output)
        if not output.text and output.finish is None and logprobs is None:
            return ()
        return [
            ChatChunkChoice(
                index=index,
                delta=AnswerDelta(content=output.text or UNSET),
                logprobs=logprobs,
                finish_reason=answer.finish_reason,
                stop_reason=_stop_reason(answer),
            )
        ]

    def scored(self, output: GenerationOutput) -> ChatLogprobs | None:
        """The log-probabilities of an output, if it has any."""
        scores = _scores(output)
        return self._scored(scores) if scores else None

    def _scored(self, scores: Sequence[Any]) -> ChatLogprobs | None:
        if self._logprobs is None:
            return None
        return chat_logprobs(self._tokeniser, scores, self._logprobs)


class TextChoiceEncoder:
    """Text completions. `echoes`: the text of each answer's prompt, where it is to be repeated."""

    document = chunk = TextCompletion

    def __init__(
        self,
        tokeniser: "EngineTokeniser",
        logprobs: int | None,
        prompt_scores: int | None,
        echoes: Sequence[str] | None,
    ) -> None:
        self._tokeniser = tokeniser
        self._logprobs = logprobs
        self._prompt_scores = prompt_scores
        self._echoes = echoes
        self._offsets: dict[int, int] = {}

    def whole(self, index: int, answer: CompletionChoice) -> TextChoice:
        echo = "" if self._echoes is None else self._echoes[index]
        tokens = [*self._echoed(answer), *answer.scores]
        return TextChoice(
            index=index,
            text=echo + answer.text,
            logprobs=self._scored(index, tokens),
            finish_reason=answer.finish_reason,
            stop_reason=answer.stopped_by,
            prompt_logprobs=_prompt_scores(self._tokeniser, answer, self._prompt_scores),
        )

    def opening(self, index: int, answer: CompletionChoice) -> Sequence[TextChoice]:
        if self._echoes is None:
            return ()
        logprobs = self._scored(index, self._echoed(answer))
        return [TextChoice(index=index, text=self._echoes[index], logprobs=logprobs)]

    def pieces(
        self, index: int, answer: CompletionChoice, output: GenerationOutput
    ) -> Sequence[TextChoice]:
        scores = () if answer.silent else _scores(output)
        text = "" if answer.silent else output.text
        if not text and output.finish is None and not scores:
            return ()
        return [
            TextChoice(
                index=index,
                text=text,
                logprobs=self._scored(index, scores) if scores else None,
                finish_reason=answer.finish_reason,
                stop_reason=_stop_reason(answer),
            )
        ]

    def _echoed(self, answer: CompletionChoice) -> list[Any]:
        if self._echoes is None or self._logprobs is None:
            return []
        return list(zip(answer.prompt, [None, *answer.prompt_scores], strict=False))

    def _scored(self, index: int, tokens: Sequence[Any]) -> TextLogprobs | None:
        if self._logprobs is None:
            return None
        offset = self._offsets.get(index, 0)
        found, offset = text_logprobs(self._tokeniser, tokens, self._logprobs, offset)
        self._offsets[index] = offset
        return found


def _scores(output: GenerationOutput) -> Sequence[Any]:
    if output.token is None or output.scored is None:
        return ()
    return ((output.token, output.scored),)


def _stop_reason(answer: CompletionChoice) -> StopReason | UnsetType:
    """Of a chunk: only the last one has it."""
    return UNSET if answer.finish is None else answer.stopped_by


def _prompt_scores(
    tokeniser: "EngineTokeniser", answer: CompletionChoice, count: int | None
) -> PromptLogprobs | UnsetType:
    if count is None:
        return UNSET
    return prompt_logprobs(tokeniser, answer.prompt, answer.prompt_scores, count)
