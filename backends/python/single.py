"""The response sender of a model that is not decoupled: exactly one response, from any thread.

`execute` may return None for what is sent this way; the batch ends when every sender has. Texts
and order of the checks are Triton's (`python_backend`, `response_sender.cc`).
"""

import threading

from backends.python.model_errors import TritonModelException
from backends.python.request import InferenceRequest, SentResponse
from backends.python.response import InferenceResponse

TRITONSERVER_RESPONSE_COMPLETE_FINAL = FINAL = 1

MORE_THAN_ONE = "Unable to send response. Non-decoupled model cannot send more than one response."
CLOSED = "Unable to send response. Response sender has been closed."


def check_sent(response: object, flags: int) -> None:
    """Raise `TritonModelException` for what no sender takes, decoupled or not."""
    if flags not in (0, FINAL):
        raise TritonModelException(
            "Unable to send response. Unsupported flag value "
            f"{flags}: use 0 or TRITONSERVER_RESPONSE_COMPLETE_FINAL ({FINAL})."
        )
    if response is None and not flags:
        raise TritonModelException(
            "Inference Response object must be provided when the response flags is set to zero."
        )
    if response is not None and not isinstance(response, InferenceResponse):
        raise TritonModelException(
            f"Expected an 'InferenceResponse' object, found type '{type(response)}'."
        )


class SingleResponseSender:
    """What the model holds; when it drops it, its request is over."""

    def __init__(self, request: InferenceRequest, sent: SentResponse) -> None:
        self._is_cancelled = request.cancelled
        self._sent = sent
        self._lock = threading.Lock()

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Send the one response, the end (`flags`), or both at once. Raises
        `TritonModelException` for anything else."""
        check_sent(response, flags)
        with self._lock:
            sent = self._sent
            if response is not None and sent.response is not None:
                raise TritonModelException(MORE_THAN_ONE)
            if response is None and sent.response is None:
                raise TritonModelException(
                    "Unable to send response. Non-decoupled model cannot send complete final "
                    "before sending a response."
                )
            if sent.ended:
                raise TritonModelException(CLOSED)
            if response is not None:
                sent.response = response
            if flags:
                sent.end()

    def is_cancelled(self) -> bool:
        """Whether nobody waits for the response any more."""
        return self._is_cancelled is not None and self._is_cancelled()

    def __del__(self) -> None:
        self._sent.end()
