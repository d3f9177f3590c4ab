"""What each path of REST and each RPC asks for, as one of the actions of `control.access`. Pure.

A path or an RPC that a front end answers and that is missing here fails a test.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from control.access.scopes import Action
from server.settings.restricted import category_of_path


class Permission(NamedTuple):
    """What is asked for, and about which model, as the client wrote it; "" for none or all."""

    action: Action
    name: str = ""


_MODEL = re.compile(r"/v2/models/([^/]+)(?:/.*)?", re.DOTALL)
_SERVER_HEALTH = "/v2/health/"
_OPENAI = re.compile(r"/v1(?:/.*)?|/(?:de)?tokenize", re.DOTALL)
_ALL_STATISTICS = "/v2/models/stats"
_READ, _OPERATE = Permission(Action.READ), Permission(Action.OPERATE)


def ask_of_path(method: str, path: str) -> Permission | None:
    """What a request to a percent-decoded path asks for; None for what anybody may.

    A path that is nobody's is answered with 404, to those who may read. OpenAI's paths name their
    model in the body: their front end asks the gate itself (`server.openai.language_inference`).
    """
    if path.startswith(_SERVER_HEALTH) or is_openai(path):
        return None
    match category_of_path(path):
        case "inference":
            return Permission(Action.INFER, _model_in(path))
        case "model-repository":
            return _READ if path.endswith("/index") else _OPERATE
        case "shared-memory":
            return _READ if path.endswith("/status") else _OPERATE
        case "trace" | "logging" if method not in ("GET", "HEAD"):
            return _OPERATE
    return Permission(Action.READ, _model_in(path))


def is_openai(path: str) -> bool:
    """Whether a path belongs to OpenAI's API, or to vLLM's additions to it."""
    return _OPENAI.fullmatch(path) is not None


def _model_in(path: str) -> str:
    found = _MODEL.fullmatch(path)
    return found[1] if found and path != _ALL_STATISTICS else ""


def _about(action: Action, field: str) -> Callable[[Any], Permission]:
    return lambda message: Permission(action, getattr(message, field))


def _read(_: Any) -> Permission:
    return _READ


def _operate(_: Any) -> Permission:
    return _OPERATE


def _settings(message: Any) -> Permission:
    """Settings are read by a message that names none."""
    return (
        _OPERATE
        if message.settings
        else Permission(Action.READ, getattr(message, "model_name", ""))
    )


RPCS: Mapping[str, Callable[[Any], Permission] | None] = {
    "ServerLive": None,
    "ServerReady": None,
    "Check": None,
    "Watch": None,
    "ModelReady": _about(Action.READ, "name"),
    "ServerMetadata": _read,
    "ModelMetadata": _about(Action.READ, "name"),
    "ModelInfer": _about(Action.INFER, "model_name"),
    "ModelStreamInfer": _about(Action.INFER, "model_name"),
    "ModelConfig": _about(Action.READ, "name"),
    "ModelStatistics": _about(Action.READ, "name"),
    "RepositoryIndex": _read,
    "RepositoryModelLoad": _operate,
    "RepositoryModelUnload": _operate,
    "SystemSharedMemoryStatus": _read,
    "SystemSharedMemoryRegister": _operate,
    "SystemSharedMemoryUnregister": _operate,
    "CudaSharedMemoryStatus": _read,
    "CudaSharedMemoryRegister": _operate,
    "CudaSharedMemoryUnregister": _operate,
    "TraceSetting": _settings,
    "LogSettings": _settings,
}
"""RPC → what its message asks for; None for what anybody may."""
