"""Clients that keep sending, each for users of its own, and count who answered."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import numpy as np
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

CLIENTS, USERS_EACH = 16, 50
PAUSE_S = 0.3
"""Between an answer and the next request."""


class Crowd:
    """What the clients have seen: answers by version, failures by what they said."""

    def __init__(self, address: str, model: str) -> None:
        self.answers: Counter[int] = Counter()
        self.failures: Counter[str] = Counter()
        self._address, self._model = address, model
        self._over = threading.Event()

    def run(self, number: int) -> None:
        """Send one request after the other, until it is over."""
        tensor = tritonclient.grpc.InferInput("ITEM", [1, 1], "INT64")
        tensor.set_data_from_numpy(np.zeros((1, 1), np.int64))
        with tritonclient.grpc.InferenceServerClient(self._address) as client:
            for request in count():
                user = f"user-{number}-{request % USERS_EACH}"
                self._ask(client, tensor, user)
                if self._over.wait(PAUSE_S):
                    return

    def stop(self) -> None:
        self._over.set()

    def told(self) -> str:
        """What has been seen since the last time, in words."""
        answers, self.answers = self.answers, Counter()
        failures, self.failures = self.failures, Counter()
        shown = [f"version {version} answered {n}" for version, n in sorted(answers.items())]
        shown += [f"{n} failed ({text})" for text, n in failures.items()]
        return ", ".join(shown) or "nobody was answered"

    def _ask(
        self,
        client: tritonclient.grpc.InferenceServerClient,
        tensor: tritonclient.grpc.InferInput,
        user: str,
    ) -> None:
        try:
            found = client.infer(self._model, [tensor], headers={"x-user": user}, client_timeout=20)
            self.answers[int(found.as_numpy("VERSION")[0, 0])] += 1
        except InferenceServerException as error:
            self.failures[str(error.message())] += 1


@contextmanager
def sending(address: str, model: str) -> Iterator[Crowd]:
    """A crowd that sends while the block lasts."""
    crowd = Crowd(address, model)
    threads = [threading.Thread(target=crowd.run, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield crowd
    finally:
        crowd.stop()
        for thread in threads:
            thread.join(30)


def wait_ready(address: str, model: str, seconds: float = 60.0) -> None:
    """Raises TimeoutError."""
    until = time.monotonic() + seconds
    with tritonclient.grpc.InferenceServerClient(address) as client:
        while not client.is_model_ready(model):
            if time.monotonic() > until:
                raise TimeoutError(f"{model} was not ready within {seconds:g} s")
            time.sleep(0.2)
