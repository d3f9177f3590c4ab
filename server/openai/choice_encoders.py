"""How answers are written: whole, or in pieces, as a chat's or as a text's completion. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from schedulers.llm.generation import GenerationOutput
from server.openai.completion_choice import CompletionChoice, usage
from server.openai.logprobs import chat_logprobs, prompt_logprobs, text_logprobs

if TYPE_CHECKING:
    from schedulers.llm.engine_tokeniser import EngineTokeniser

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DocumentHeader:
    """What every document of an answer begins with."""

    id: str
    model: str
    created: int
    fingerprint: str

    def document(self, kind: str, choices: Sequence[Json]) -> Json:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        }


class ChoiceEncoder(Protocol):
    """The choices of one endpoint's documents. `kind` and `chunk_kind`: their `object`."""

    kind: str
    chunk_kind: str

    def whole(self, index: int, answer: CompletionChoice) -> Json:
        """An answer that has ended, as a choice."""

    def opening(self, index: int, answer: CompletionChoice) -> Sequence[Json]:
        """What stands before an answer's first piece; it has just begun."""

    def pieces(
        self, index: int, answer: CompletionChoice, output: GenerationOutput
    ) -> Sequence[Json]:
        """What an output adds."""


def whole(
    form: ChoiceEncoder, head: DocumentHeader, answers: Sequence[CompletionChoice], count: int
) -> Json:
    """The document of answers that have ended; `count` of them to each prompt."""
    choices = [form.whole(index, answer) for index, answer in enumerate(answers)]
    return {**head.document(form.kind, choices), "usage": usage(answers, count)}


class ChatChoiceEncoder:
    """Chat completions. `logprobs`: None for none, else how many likeliest beside each token."""

    kind, chunk_kind = "chat.completion", "chat.completion.chunk"

    def __init__(
        self, tokeniser: "EngineTokeniser", logprobs: int | None, prompt_scores: int | None
    ) -> None:
        self._tokeniser = tokeniser
        self._logprobs = logprobs
        self._prompt_scores = prompt_scores

    def whole(self, index: int, answer: CompletionChoice) -> Json:
        message = {"role": "assistant", "content": answer.text, "refusal": None}
        found = {
            "index": index,
            "message": message,
            "logprobs": self._scored(answer.scores),
            "finish_reason": answer.finish_reason,
            "stop_reason": answer.stopped_by,
        }
        return found | _prompt_scores(self._tokeniser, answer, self._prompt_scores)

    def opening(self, index: int, answer: CompletionChoice) -> Sequence[Json]:
        return [self.choice(index, {"role": "assistant", "content": ""})]

    def pieces(
        self, index: int, answer: CompletionChoice, output: GenerationOutput
    ) -> Sequence[Json]:
        delta = {"content": output.text} if output.text else {}
        found = self.choice(index, delta, output)
        if not delta and output.finish is None and found["logprobs"] is None:
            return ()
        return [_ended(found, answer)]

    def choice(self, index: int, delta: Json, output: GenerationOutput | None = None) -> Json:
        """A chunk's choice, with the log-probabilities of the output if there is one."""
        scores = () if output is None else _scores(output)
        logprobs = self._scored(scores) if scores else None
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None}

    def _scored(self, scores: Sequence[Any]) -> Json | None:
        if self._logprobs is None:
            return None
        return chat_logprobs(self._tokeniser, scores, self._logprobs)


class TextChoiceEncoder:
    """Text completions. `echoes`: the text of each answer's prompt, where it is to be repeated."""

    kind = chunk_kind = "text_completion"

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

    def whole(self, index: int, answer: CompletionChoice) -> Json:
        echo = "" if self._echoes is None else self._echoes[index]
        tokens = [*self._echoed(answer), *answer.scores]
        found = {
            "index": index,
            "text": echo + answer.text,
            "logprobs": self._scored(index, tokens),
            "finish_reason": answer.finish_reason,
            "stop_reason": answer.stopped_by,
        }
        return found | _prompt_scores(self._tokeniser, answer, self._prompt_scores)

    def opening(self, index: int, answer: CompletionChoice) -> Sequence[Json]:
        if self._echoes is None:
            return ()
        found = self._choice(index, self._echoes[index])
        found["logprobs"] = self._scored(index, self._echoed(answer))
        return [found]

    def pieces(
        self, index: int, answer: CompletionChoice, output: GenerationOutput
    ) -> Sequence[Json]:
        scores = () if answer.silent else _scores(output)
        text = "" if answer.silent else output.text
        if not text and output.finish is None and not scores:
            return ()
        found = self._choice(index, text)
        found["logprobs"] = self._scored(index, scores) if scores else None
        return [_ended(found, answer)]

    def _choice(self, index: int, text: str) -> Json:
        return {"index": index, "text": text, "logprobs": None, "finish_reason": None}

    def _echoed(self, answer: CompletionChoice) -> list[Any]:
        if self._echoes is None or self._logprobs is None:
            return []
        return list(zip(answer.prompt, [None, *answer.prompt_scores], strict=False))

    def _scored(self, index: int, tokens: Sequence[Any]) -> Json | None:
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


def _ended(choice: Json, answer: CompletionChoice) -> Json:
    if answer.finish is not None:
        choice["finish_reason"] = answer.finish_reason
        choice["stop_reason"] = answer.stopped_by
    return choice


def _prompt_scores(
    tokeniser: "EngineTokeniser", answer: CompletionChoice, count: int | None
) -> Json:
    if count is None:
        return {}
    scores = prompt_logprobs(tokeniser, answer.prompt, answer.prompt_scores, count)
    return {"prompt_logprobs": scores}
