"""The work of an embedding model's process: lists of tokens in, vectors out, a pass at a time."""

import time
from collections.abc import Callable, Generator

from backends.llm.embedder import Embedder, Vectors
from backends.llm.errors import DeviceLost
from schedulers.llm.frames import (
    Cancel,
    Embed,
    Embedded,
    Figures,
    Message,
    Refused,
    Stepped,
    Submit,
    unpack_tokens,
)

TOGETHER = 64
"""Requests whose lists are computed together, at most; those behind wait for their turn."""

Lists = list[tuple[int, ...]]


class Embedding:
    """One embedder, as `schedulers.llm.loop.Work`; in the order of arrival."""

    def __init__(self, embedder: Embedder, say: Callable[[Message], None]) -> None:
        self._embedder = embedder
        self._say = say
        self._waiting: dict[str, Lists] = {}
        self._current: dict[str, Lists] = {}
        self._gone: set[str] = set()
        self._passes: Generator[None, None, Vectors] | None = None
        self._steps = self._tokens = 0

    patience_s: float | None = None

    @property
    def busy(self) -> bool:
        return bool(self._waiting) or self._passes is not None

    def obey(self, message: Message) -> None:
        match message:
            case Embed(id, packed):
                self._take(id, [unpack_tokens(one) for one in packed])
            case Cancel(ids):
                for id in ids:
                    self._waiting.pop(id, None)
                self._gone.update(ids)
                if self._current.keys() <= self._gone:
                    self._end()  # nobody waits for any of them
                if not self.busy:
                    self._tell(time.monotonic_ns())
            case Submit(requests):
                for request in requests:
                    self._say(Refused(request[0], "invalid", "this model gives no text"))

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
        except Exception as error:  # noqa: BLE001 (every request of the pass hears of it)
            for id in self._current:
                self._say(Embedded(id, b"", f"the model could not compute: {error}"))
            self._end()
        self._tell(began_ns)

    def _take(self, id: str, lists: Lists) -> None:
        try:
            self._embedder.refuse(lists)
        except ValueError as error:
            self._say(Refused(id, "invalid", str(error)))
        else:
            self._waiting[id] = lists

    def _begin(self, began_ns: int) -> None:
        ids = tuple(self._waiting)[:TOGETHER]
        self._current = {id: self._waiting.pop(id) for id in ids}
        together = [one for lists in self._current.values() for one in lists]
        self._passes = self._embedder.steps(together)
        self._say(Stepped(began_ns, ids, (), None))

    def _answer(self, vectors: Vectors) -> None:
        first = 0
        for id, lists in self._current.items():
            self._say(Embedded(id, vectors[first : first + len(lists)].tobytes(), ""))
            first += len(lists)
            self._tokens += sum(map(len, lists))
        self._end()

    def _end(self) -> None:
        if self._passes is not None:
            self._passes.close()
        self._passes, self._current, self._gone = None, {}, set()

    def _tell(self, began_ns: int) -> None:
        waiting = sum(len(one) for lists in self._waiting.values() for one in lists)
        figures = Figures(
            self._steps, self._tokens, 0, 0, 0,
            len(self._current), len(self._waiting), waiting, 0, 0, 0,
        )  # fmt: skip
        self._say(Stepped(began_ns, (), (), figures))
