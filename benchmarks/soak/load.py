"""The traffic: threads that send requests of all kinds at random, and what became of each."""

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.soak.language import Language, Said
from benchmarks.soak.latency import bucket_of
from benchmarks.soak.outcome import Hung, Lost, Refused, Wrong
from benchmarks.soak.plain import Plain
from benchmarks.soak.rows import Minute
from benchmarks.soak.vectors import Vectors
from benchmarks.soak.verdict import HANG_S

SLOW_S = 5.0
PATIENT = 45.0
"""Seconds after which a slow reader, who takes twelve himself, counts as hung."""
MOST_DETAILS = 500
"""Rows of slow and of bad requests in a file; further ones are only counted."""
SHARES = {
    "REST JSON": 20, "REST binary": 20, "gRPC unary": 20, "REST ONNX": 8, "shared memory": 8,
    "ModelStreamInfer": 4, "generate_stream": 4, "completion": 6, "chat": 6, "chat stream": 6,
    "ModelStreamInfer, cancelled": 3, "generate_stream, cancelled": 3, "chat stream, cancelled": 3,
}  # fmt: skip
"""Of each kind among a hundred requests of the mixed threads."""
ALONE = {"slow reader": 8.0, "client crash": 10.0}
"""Kinds with a thread of their own, and its pause in seconds."""


@dataclass(slots=True)
class Ledger:
    """What became of the requests of the minute under way; its own lock's business."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    outcomes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    latency: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    longest: dict[str, float] = field(default_factory=dict)
    refusals: Counter[str] = field(default_factory=Counter)

    def note(self, kind: str, outcome: str, seconds: float, said: str) -> None:
        with self.lock:
            self.outcomes[kind][outcome] += 1
            self.latency[kind][bucket_of(seconds)] += 1
            self.longest[kind] = max(self.longest.get(kind, 0.0), seconds)
            if outcome == "refused":
                self.refusals[f"{kind}: {said[:200]}"] += 1

    def taken(self, number: int, at: float, **more: float) -> Minute:
        """The minute so far, as a row; the next begins empty."""
        with self.lock:
            minute = Minute(
                number, round(at, 1),
                {kind: dict(found) for kind, found in self.outcomes.items()},
                {kind: dict(found) for kind, found in self.latency.items()},
                {kind: round(found, 3) for kind, found in self.longest.items()},
                dict(self.refusals.most_common(20)), **more,
            )  # fmt: skip
            for one in (self.outcomes, self.latency, self.longest, self.refusals):
                one.clear()
        return minute


Notice = Callable[[str, Mapping[str, Any]], None]
"""Told of a request that took long or was not answered rightly: "slow" or "wrong", and the row."""


class Load:
    """`threads` mixed threads that send `rate` requests a second together, and one for each kind
    that needs its own. `under_way` is what each thread is at, and since when."""

    def __init__(
        self, rest: str, wire: str, said: Said, notice: Notice, rate: float, threads: int = 6
    ) -> None:
        self.ledger = Ledger()
        self.under_way: dict[str, tuple[str, float]] = {}
        self._where = (rest, wire, said)
        self._notice = notice
        self._ending = threading.Event()
        self._details: Counter[str] = Counter()
        shared = tuple(SHARES), threads / rate
        named = [(f"mixed {number}", shared) for number in range(threads)]
        named += [(kind, ((kind,), pause)) for kind, pause in ALONE.items()]
        self._threads = [
            threading.Thread(target=self._run, args=(seed, *terms), name=name)
            for seed, (name, terms) in enumerate(named)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> list[str]:
        """Waits for the last answers; the threads that never came back."""
        self._ending.set()
        until = time.monotonic() + 4 * HANG_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return [thread.name for thread in self._threads if thread.is_alive()]

    def _run(self, seed: int, kinds: tuple[str, ...], pause: float) -> None:
        draw = random.Random(seed)
        clients = _Clients(*self._where, seed)
        weights = [SHARES.get(kind, 1) for kind in kinds]
        try:
            while not self._ending.wait(draw.expovariate(1 / pause)):
                (kind,) = draw.choices(kinds, weights)
                self._ask(kind, clients.asks[kind])
        finally:
            clients.close()

    def _ask(self, kind: str, ask: Callable[[], str]) -> None:
        me = threading.current_thread().name
        began = time.monotonic()
        self.under_way[me] = (kind, began)
        said = ""
        try:
            outcome = ask()
        except (Refused, Wrong, Lost, Hung) as error:
            outcome, said = type(error).__name__.lower(), str(error)
        except Exception as error:  # noqa: BLE001 the client's own fault is an answer we cannot vouch for
            outcome, said = "wrong", f"the client raised {error!r}"
        finally:
            del self.under_way[me]
        took = time.monotonic() - began
        if took > (PATIENT if kind == "slow reader" else HANG_S):
            outcome, said = "hung", f"{outcome} after {took:.1f} s {said}"
        if outcome == "refused" and not _is_worded(said):
            outcome = "wrong"
        self.ledger.note(kind, outcome, took, said)
        self._tell(kind, outcome, took, said)

    def _tell(self, kind: str, outcome: str, took: float, said: str) -> None:
        row = {"kind": kind, "outcome": outcome, "took": round(took, 3), "said": said[:500]}
        bad = "wrong" if outcome in ("wrong", "lost", "hung") else ""
        slow = "slow" if took > SLOW_S and kind != "slow reader" else ""
        for what in filter(None, (bad, slow)):
            self._details[what] += 1
            if self._details[what] <= MOST_DETAILS:
                self._notice(what, row)


def _is_worded(said: str) -> bool:
    """A refusal says something, and not that we have a fault."""
    return bool(said.strip()) and "This is a bug" not in said and "Traceback" not in said


class _Clients:
    """What one thread asks with."""

    def __init__(self, rest: str, wire: str, said: Said, seed: int) -> None:
        host, _, port = rest.partition(":")
        self._vectors = Vectors(rest, wire, seed)
        self._language = Language(rest, seed, said)
        self._plain = Plain(host, int(port), seed)
        self.asks: dict[str, Callable[[], str]] = {
            "REST JSON": self._vectors.rest_json,
            "REST binary": self._vectors.rest_binary,
            "REST ONNX": self._vectors.rest_simple,
            "gRPC unary": self._vectors.grpc_unary,
            "ModelStreamInfer": self._vectors.grpc_stream,
            "ModelStreamInfer, cancelled": self._vectors.grpc_cancelled,
            "shared memory": self._vectors.shared_memory,
            "generate_stream": self._plain.generate_stream,
            "generate_stream, cancelled": self._plain.stream_cancelled,
            "slow reader": self._plain.slow_reader,
            "client crash": self._plain.crash,
            "completion": self._language.completion,
            "chat": self._language.chat,
            "chat stream": self._language.chat_stream,
            "chat stream, cancelled": self._language.chat_cancelled,
        }

    def close(self) -> None:
        for one in (self._vectors, self._language, self._plain):
            one.close()
