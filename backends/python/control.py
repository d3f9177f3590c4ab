"""Model control from a python model: load, unload and look at other models of its server.

Names and meanings are Triton's. The server refuses it unless its administrator allows it
(`--allow-model-control-by-models`).
"""

import os
from collections.abc import Mapping
from queue import SimpleQueue

import numpy as np

from backends.process.call_client import Answer, call_client
from backends.process.call_messages import IS_READY, LOAD, UNLOAD, ControlAnswer, ControlRequest
from backends.process.message_tensors import pack_message
from backends.python.model_errors import TritonModelException


def load_model(
    model_name: str, config: str = "", files: Mapping[str, bytes | str] | None = None
) -> None:
    """Load or reload a model and wait for it; `config` (JSON text) and `files` (paths beginning
    with "file:") stand in for the repository's. Raises `TritonModelException` with the reason."""
    contents = {
        path: np.frombuffer(text.encode() if isinstance(text, str) else text, np.uint8)
        for path, text in (files or {}).items()
    }
    _control(LOAD, model_name, config=config or "", files=contents)


def unload_model(model_name: str, unload_dependents: bool = False) -> None:
    """Unload a model; requests inside still finish. Raises `TritonModelException`."""
    _control(UNLOAD, model_name, dependents=unload_dependents)


def is_model_ready(model_name: str, model_version: str = "") -> bool:
    """Whether a version ("": any) takes requests. Raises `TritonModelException`."""
    return _control(IS_READY, model_name, version=str(model_version)).ready


def _control(
    verb: str,
    model: str,
    version: str = "",
    config: str = "",
    dependents: bool = False,
    files: Mapping[str, "np.ndarray[tuple[int, ...], np.dtype[np.generic]]"] | None = None,
) -> ControlAnswer:
    client = call_client()
    if client is None:
        raise TritonModelException("this process controls no models: it has no server")
    answers: SimpleQueue[Answer | None] = SimpleQueue()

    def deliver(answer: Answer | None, fd: int) -> None:
        if fd >= 0:
            os.close(fd)
        answers.put(answer)

    blocks, data, fd = pack_message(files or {})
    number = client.open(deliver)
    try:
        client.send(
            ControlRequest(number, verb, model, version, config, dependents, blocks, data), fd
        )
        answer = answers.get()
    finally:
        client.close(number)
    if not isinstance(answer, ControlAnswer):
        raise TritonModelException("the server has closed the connection")
    if answer.error:
        raise TritonModelException(answer.error)
    return answer
