"""Small makers for scheduler tests: requests, tickets, and instances that the test has in hand."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from backends.seam import Batch, BatchResult
from schedulers.llm.engine_messages import Message
from schedulers.llm.gateway.instance import EngineInstance
from schedulers.policy.queue import Ticket
from schedulers.request import InferRequest


def request(rows: int = 1, value: float = 0.0, **fields: Any) -> InferRequest:
    inputs = {"X": np.full((rows, 2), value, np.float32)}
    fields = {"shape_key": None, "arrived_ns": 0, **fields}
    return InferRequest("m", 1, inputs, rows, **fields)


def ticket(rows: int = 1, **fields: Any) -> Ticket:
    return Ticket(request(rows, **fields))


class GatedEcho:
    """Echoes each member's inputs once the test opens the gate; remembers the batches it saw."""

    device = "cpu"

    def __init__(self, cores: int = 1, error: BaseException | None = None) -> None:
        self.cores = cores
        self.ready = True
        self.changed: Callable[[], None] = lambda: None
        self.error = error
        self.gate = threading.Event()
        self.started = threading.Semaphore(0)
        self.batches: list[Sequence[int]] = []
        self.closed = False

    def execute(self, batch: Batch) -> BatchResult:
        self.batches.append(list(batch.rows))
        self.started.release()
        assert self.gate.wait(60)
        if self.error is not None:
            raise self.error
        return BatchResult([dict(member.inputs) for member in batch.members], 1, 2, 3)

    def close(self) -> None:
        self.closed = True


class EngineWithoutProcess(EngineInstance):
    """An engine that notes what it is told."""

    def __init__(self) -> None:
        self.ready = True
        self.deaths = 0
        self.told: list[Message] = []
        self.closed = False

    def post(self, message: Message) -> bool:
        self.told.append(message)
        return True

    def close(self) -> None:
        self.closed = True

    def die(self) -> None:
        self.ready = False
        self.deaths += 1
        self.changed()

    def revive(self) -> None:
        self.ready = True
        self.changed()
