"""The work of an embedding model's process: lists of tokens in, vectors out, a pass at a time."""

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from itertools import accumulate, takewhile

import numpy as np

from backends.llm.embedder import Embedder, Vectors
from backends.llm.errors import DeviceLost
from schedulers.llm.engine_messages import (
    Cancel,
    Embed,
    EmbedReply,
    EngineStats,
    Message,
    RequestRefused,
    StepReport,
    Submit,
    unpack_tokens,
)

TOGETHER = 64
"""Requests whose lists are computed together, at most; those behind wait for their turn."""

ROUND_TOKENS = 4096
"""Of a round, in which each of these requests computes as many texts as its share holds; one text
at least."""

Lists = list[tuple[int, ...]]


def _embedded(id: str, vectors: Vectors) -> EmbedReply:
    wrong = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(wrong):
        return EmbedReply(id, b"", f"the model's vector of text {wrong[0]} is not numbers")
    return EmbedReply(id, vectors.tobytes(), "")


@dataclass(slots=True)
class _EmbeddingRequest:
    """One request's: `left` to compute, of which the first `taken` are in this round; `vectors` of
    those before."""

    left: Lists
    taken: int = 0
    vectors: list[Vectors] = field(default_factory=list)

    def take(self, tokens: int) -> Lists:
        """The next texts of no more than so many tokens together, one at least."""
        sums = accumulate(map(len, self.left))
        fitting = sum(1 for _ in takewhile(lambda total: total <= tokens, sums))
        self.taken = min(max(fitting, 1), len(self.left))
        return self.left[: self.taken]

    def took(self, vectors: Vectors) -> int:
        """Those texts have their vectors; how many tokens they had."""
        done, self.left = self.left[: self.taken], self.left[self.taken :]
        self.vectors.append(vectors)
        return sum(map(len, done))


class EmbeddingWork:
    """One embedder, as `schedulers.llm.engine.loop.EngineWork`. Requests are computed in rounds of
    a bounded size, which all that wait have a part in: a thousand texts of one do not stop
    another's."""

    def __init__(self, embedder: Embedder, send: Callable[[Message], None]) -> None:
        self._embedder = embedder
        self._send = send
        self._waiting: dict[str, _EmbeddingRequest] = {}
        self._current: dict[str, _EmbeddingRequest] = {}
        self._begun: set[str] = set()
        self._gone: set[str] = set()
        self._passes: Generator[None, None, Vectors] | None = None
        self._steps = self._tokens = 0

    patience_s: float | None = None

    @property
    def busy(self) -> bool:
        return bool(self._waiting) or self._passes is not None

    def handle(self, message: Message) -> None:
        match message:
            case Embed(id, packed):
                self._take(id, [unpack_tokens(one) for one in packed])
            case Cancel(ids):
                for id in ids:
                    self._waiting.pop(id, None)
                    self._begun.discard(id)
                self._gone.update(ids)
                if self._current.keys() <= self._gone:
                    self._end()  # nobody waits for any of them
                if not self.busy:
                    self._report(time.monotonic_ns())
            case Submit(requests):
                for request in requests:
                    self._send(RequestRefused(request.id, "invalid", "this model gives no text"))

    def step(self) -> None:
        """One pass; the vectors after the last of them. Raises DeviceLost: the process ends."""
        began_ns = time.monotonic_ns()
        if self._passes is None:
            self._begin(began_ns)
        assert self._passes is not None
        self._steps += 1
        try:
            next(self._passes)
        except StopIteration as done:
            self._answer(done.value)
        except DeviceLost:
            raise
        except Exception as error:  # noqa: BLE001 (every request of the pass gets it)
            for id in self._current:
                self._send(EmbedReply(id, b"", f"the model could not compute: {error}"))
                self._begun.discard(id)
            self._end()
        self._report(began_ns)

    def _take(self, id: str, lists: Lists) -> None:
        try:
            self._embedder.refuse(lists)
        except ValueError as error:
            self._send(RequestRefused(id, "invalid", str(error)))
        else:
            self._waiting[id] = _EmbeddingRequest(lists)

    def _begin(self, began_ns: int) -> None:
        ids = tuple(self._waiting)[:TOGETHER]
        self._current = {id: self._waiting.pop(id) for id in ids}
        share = ROUND_TOKENS // len(ids)
        together = [one for texts in self._current.values() for one in texts.take(share)]
        self._passes = self._embedder.steps(together)
        started = tuple(id for id in ids if id not in self._begun)
        self._begun.update(ids)
        self._send(StepReport(began_ns, started, [], None))

    def _answer(self, vectors: Vectors) -> None:
        first = 0
        for id, texts in self._current.items():
            own = vectors[first : first + texts.taken]
            first += texts.taken
            self._tokens += texts.took(own)
            if not texts.left:
                self._send(_embedded(id, np.concatenate(texts.vectors)))
                self._begun.discard(id)
            elif id not in self._gone:
                self._waiting[id] = texts  # behind those that came meanwhile
        self._end()

    def _end(self) -> None:
        if self._passes is not None:
            self._passes.close()
        self._passes, self._current, self._gone = None, {}, set()

    def _report(self, began_ns: int) -> None:
        waiting = sum(len(one) for texts in self._waiting.values() for one in texts.left)
        figures = EngineStats(
            self._steps, self._tokens, 0, 0, 0,
            len(self._current), len(self._waiting), waiting, 0, 0, 0,
        )  # fmt: skip
        self._send(StepReport(began_ns, (), [], figures))
