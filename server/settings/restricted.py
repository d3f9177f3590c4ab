"""Which parts of the API need a secret header, and which path belongs to which part.

The listeners ask here before anything else is done for a request. Categories, syntax and texts are
Triton's (`--http-restricted-api`, `--grpc-restricted-protocol`).
"""

import re
from collections.abc import Iterable, Mapping
from hmac import compare_digest
from typing import NamedTuple

from server.settings.kinds import ValueKind

CATEGORIES = (
    "health",
    "metadata",
    "inference",
    "shared-memory",
    "model-config",
    "model-repository",
    "statistics",
    "trace",
    "logging",
)

_MODEL = r"/v2/models/[^/]+(?:/versions/[^/]+)?"
ROUTES: tuple[tuple[str, str], ...] = (
    (r"/v2/health/.*", "health"),
    (_MODEL + r"/ready", "health"),
    (r"/v2/models/stats", "statistics"),
    (_MODEL + r"/stats", "statistics"),
    (_MODEL + r"/config", "model-config"),
    (_MODEL + r"/(?:infer|generate|generate_stream)", "inference"),
    (r"/v2/models/[^/]+/feedback", "inference"),
    (r"/v1/(?:chat/completions|completions|embeddings)|(?:/v1)?/(?:de)?tokenize", "inference"),
    (r"/v2/models/[^/]+/trace/setting", "trace"),
    (r"/v2/trace/setting", "trace"),
    (r"/v2/logging", "logging"),
    (r"/v2/repository/.*", "model-repository"),
    (r"/v2/(?:system|cuda)sharedmemory/.*", "shared-memory"),
    (_MODEL, "metadata"),
    (r"/v2|/|/docs|/openapi\.json|/v1/models(?:/.*)?", "metadata"),
)
"""Path (all of it, percent-decoded) → category; the first that matches counts."""

RPCS: Mapping[str, str] = {
    "ServerLive": "health",
    "ServerReady": "health",
    "ModelReady": "health",
    "Check": "health",
    "Watch": "health",
    "ServerMetadata": "metadata",
    "ModelMetadata": "metadata",
    "ModelInfer": "inference",
    "ModelStreamInfer": "inference",
    "ModelConfig": "model-config",
    "ModelStatistics": "statistics",
    "RepositoryIndex": "model-repository",
    "RepositoryModelLoad": "model-repository",
    "RepositoryModelUnload": "model-repository",
    "SystemSharedMemoryStatus": "shared-memory",
    "SystemSharedMemoryRegister": "shared-memory",
    "SystemSharedMemoryUnregister": "shared-memory",
    "CudaSharedMemoryStatus": "shared-memory",
    "CudaSharedMemoryRegister": "shared-memory",
    "CudaSharedMemoryUnregister": "shared-memory",
    "TraceSetting": "trace",
    "LogSettings": "logging",
}
"""RPC → category; `Check` and `Watch` are those of grpc.health.v1."""

_PATTERNS = tuple((re.compile(path), category) for path, category in ROUTES)
GRPC_PREFIX = "triton-grpc-protocol-"


class RequiredHeader(NamedTuple):
    """The header a category asks for. `header` is in lower case."""

    header: str
    value: str

    def opens(self, headers: Iterable[tuple[str, str]]) -> bool:
        """Whether one of `headers` (name in lower case, value) is the key; in constant time."""
        secret = self.value.encode()
        return any(
            compare_digest(value.encode(), secret) for name, value in headers if name == self.header
        )


Locks = Mapping[str, RequiredHeader]
"""Category → lock, for the restricted categories."""


def category_of_path(path: str) -> str | None:
    """The category of a REST path; None for a path that is nobody's."""
    return next((category for found, category in _PATTERNS if found.fullmatch(path)), None)


def read_locks(rules: Iterable[str], prefix: str = "") -> Locks:
    """The locks of rules like "inference,health:key=value"; headers get `prefix`.

    Raises ValueError for a rule that is not of this form or locks a category a second time.
    """
    locks: dict[str, RequiredHeader] = {}
    for rule in rules:
        names, header, value = _parts(rule)
        for name in names:
            if name in locks:
                raise ValueError(f"'{name}' is restricted twice")
            locks[name] = RequiredHeader((prefix + header).lower(), value)
    return locks


def _parts(rule: str) -> tuple[list[str], str, str]:
    apis, colon, pair = rule.partition(":")
    key, equals, value = pair.partition("=")
    names = [name.strip() for name in apis.split(",")]
    value = value.strip()  # as a header's: spaces around it never arrive
    if not (colon and equals and key.strip() and value) or not set(names) <= set(CATEGORIES):
        raise ValueError(f"'{rule}' is not APIS:KEY=VALUE")
    return names, key.strip(), value


def http_text(lock: RequiredHeader) -> str:
    return f"This API is restricted, expecting header '{lock.header}'"


def grpc_text(lock: RequiredHeader) -> str:
    return f"This protocol is restricted, expecting header '{lock.header}'"


def _read_rule(text: str) -> str:
    _parts(text)
    return text


RESTRICTION = ValueKind(
    "APIS:KEY=VALUE",
    "a comma-separated list of APIs, then :KEY=VALUE; the APIs are " + ", ".join(CATEGORIES),
    _read_rule,
    (str,),
    separator=";",
    shown=lambda text: re.sub(r"=.+", "=***", text, flags=re.DOTALL),
)
