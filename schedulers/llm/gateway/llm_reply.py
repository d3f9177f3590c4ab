"""One Reply of a language model in the making: its answers, on their way from engine to reader."""

from asyncio import TimerHandle

import numpy as np
from msgspec.structs import replace

from backends.llm.backend import EMBEDDING, TEXT_OUTPUT
from schedulers.llm.errors import AnswerUnread
from schedulers.llm.gateway.llm_request import LLMRequest
from schedulers.llm.generation import OUTPUT, GenerationOutput
from schedulers.policy.queue import Ticket
from schedulers.request import InferRequest, InferResponse

MOST_UNREAD = 2048
"""Responses kept for a reader who does not come; an answer with more is given up."""


class LLMReply(Ticket):
    """The slip of one request, and what its scheduler knows of it; on the loop's thread.

    `ids`: what the engine calls its answers that are still open. `answers`, `tokens`: what it
    counts for at admission. `has_sent`: whether a response went out. `replayed`: whether an
    engine has died with it. `started_ns`: when its prompt was first computed, 0 before.
    `before_ns`: when each answer last had a token. `unread_count`: responses that went out and
    were not read yet.
    """

    __slots__ = (
        "_pieces", "answers", "before_ns", "has_sent", "ids", "llm_request", "position", "replayed",
        "timer", "tokens", "unread_count",
    )  # fmt: skip

    def __init__(self, request: InferRequest, llm_request: LLMRequest) -> None:
        super().__init__(request)
        self.llm_request = llm_request
        self.ids: dict[str, int] = {}
        self.answers = self.tokens = 0
        self.has_sent = False
        self.replayed = False
        self.position = 0
        self.before_ns: dict[int, int] = {}
        self.timer: TimerHandle | None = None
        self.unread_count = 0
        self._pieces: list[str] = []

    def begin_again(self) -> None:
        """Its engine is gone, and nothing of what it sent has gone out."""
        self.ids, self.before_ns, self._pieces = {}, {}, []
        self.started_ns = 0

    def send_output(self, index: int, output: GenerationOutput, last: bool) -> bool:
        """Hand an Output on, in the form that was asked for; whether a response went out.

        Raises AnswerUnread when the reader is too far behind.
        """
        response = self._response(index, output, last)
        if response is None:
            return False
        self.unread_count += 1
        if self.unread_count > MOST_UNREAD and not last:
            raise AnswerUnread(
                f"{MOST_UNREAD} parts of the response were not read; it was cancelled"
            )
        self.has_sent = True
        self.send(response)
        return True

    def send_vectors(self, data: bytes) -> None:
        """Hand the vectors on, which are the whole answer."""
        request = self.request
        vectors = np.frombuffer(data, np.float32).reshape(len(self.llm_request.lists or ()), -1)
        self.send(InferResponse(request.id, request.model, request.version, {EMBEDDING: vectors}))

    def _response(self, index: int, output: GenerationOutput, last: bool) -> InferResponse | None:
        request = self.request
        text_input = self.llm_request.text_input
        if text_input is None:
            indexed = (index, replace(output, id=self.llm_request.requests[index].id))
            return InferResponse(
                request.id, request.model, request.version, {}, {OUTPUT: indexed}, last=last
            )
        text = output.text
        if not text_input.streams:
            self._pieces.append(text)
            if not last:
                return None
            prompt = text_input.prompt if text_input.prepends else ""
            text = prompt + "".join(self._pieces)
        elif not text and not last:
            return None
        array = np.empty(1, object)
        array[0] = text.encode("utf-8", "replace")
        return InferResponse(
            request.id, request.model, request.version, {TEXT_OUTPUT: array}, last=last
        )
