"""Verified traffic: every answer is held against what the model must say, and every one ends."""

import http.client
import itertools
import json
import threading
import time
from collections.abc import Callable

import grpc
import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from benchmarks.faults.outcome import HANG_S, Tally
from benchmarks.faults.server import Server

PAUSE_S = 0.02
PROMPT = "the quick brown fox"
_numbers = itertools.count(1)


class Load:
    """A thread for each model and wire, from `start` to `stop`; `tally` has what became of all."""

    def __init__(self, server: Server) -> None:
        self.tally = Tally()
        self._server = server
        self._ending = threading.Event()
        self._expected = _completion(server)[1]
        self._asks: dict[str, Callable[[], str]] = {
            "echo over REST": lambda: self._vector("echo", 1.0),
            "double over REST": lambda: self._vector("double", 2.0),
            "echo over gRPC": lambda: self._grpc("echo", 1.0),
            "tiny over OpenAI": self._language,
            "chain over REST": lambda: self._vector("chain", 2.0),
            "script over gRPC": lambda: self._grpc("script", 2.0),
            "sum over REST": self._sequence,
        }
        self._threads = [
            threading.Thread(target=self._ask, args=(name, ask), name=name, daemon=True)
            for name, ask in self._asks.items()
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Waits for the last answers."""
        self._ending.set()
        for thread in self._threads:
            thread.join(2 * HANG_S + 10)
            if thread.is_alive():
                self.tally.note("hung", f"{thread.name}: never came back")

    def each_is_right(self) -> bool:
        """Whether one more request to each model is answered rightly."""
        try:
            return all(ask() == "right" for ask in self._asks.values())
        except (OSError, http.client.HTTPException):
            return False

    def _ask(self, name: str, ask: Callable[[], str]) -> None:
        while not self._ending.is_set():
            began = time.monotonic()
            try:
                what = ask()
            except TimeoutError:
                what = "hung"
            except (OSError, http.client.HTTPException) as error:
                what = "broken"
                self.tally.note("", f"{error!r}")
            if time.monotonic() - began > HANG_S:
                what = "hung"
            self.tally.note(what, name)
            self.tally.of_model[name.partition(" ")[0], what] += 1
            self._ending.wait(PAUSE_S)

    def _vector(self, model: str, factor: float) -> str:
        sent = [float(next(_numbers)), 0.5]
        return self._rest(model, sent, [factor * one for one in sent], {})

    def _rest(
        self, model: str, sent: list[float], right: list[float], parameters: dict[str, object]
    ) -> str:
        tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, len(sent)], "data": sent}
        body = json.dumps({"inputs": [tensor], "parameters": parameters}).encode()
        status, answer = self._server.ask("POST", f"/v2/models/{model}/infer", body, HANG_S)
        if status != 200:
            return self._refused(status, answer)
        return "right" if json.loads(answer)["outputs"][0]["data"] == right else "wrong"

    def _sequence(self) -> str:
        """Three requests; what becomes of the first that is not answered rightly is told of all."""
        key, total = next(_numbers), 0.0
        for index in range(3):
            value = float(next(_numbers))
            total += value
            parameters: dict[str, object] = {"sequence_id": key}
            parameters |= {"sequence_start": index == 0, "sequence_end": index == 2}
            what = self._rest("sum", [value], [total], parameters)
            if what != "right":
                return what
        return "right"

    def _grpc(self, model: str, factor: float) -> str:
        sent = np.array([[float(next(_numbers)), 0.5]], np.float32)
        tensor = triton.InferInput("INPUT0", [1, 2], "FP32")
        tensor.set_data_from_numpy(sent)
        address = f"{self._server.host}:{self._server.ports[1]}"
        try:
            with triton.InferenceServerClient(address) as client:
                answer = client.infer(model, [tensor], client_timeout=HANG_S)
        except InferenceServerException as error:
            if "DEADLINE" in str(error.status()):
                return "hung"
            return "refused" if error.message() else "wrong"
        except grpc.RpcError:
            return "broken"
        right = np.array_equal(answer.as_numpy("OUTPUT0"), factor * sent)
        return "right" if right else "wrong"

    def _language(self) -> str:
        status, text = _completion(self._server)
        if status != 200:
            return self._refused(status, text.encode())
        return "right" if text == self._expected else "wrong"

    def _refused(self, status: int, answer: bytes) -> str:
        """An error must say something, and not be ours."""
        self.tally.note("", f"{status} {answer[:200]!r}")
        return "wrong" if not answer or b"This is a bug" in answer else "refused"


def _completion(server: Server) -> tuple[int, str]:
    """Status, and the text of a greedy completion or of the error."""
    asked = {"model": "tiny", "prompt": PROMPT, "max_tokens": 8, "temperature": 0}
    status, body = server.ask("POST", "/v1/completions", json.dumps(asked).encode(), HANG_S)
    if status != 200:
        return status, body.decode()
    return status, str(json.loads(body)["choices"][0]["text"])
