"""Request headers as parameters of the model, where the operator says which: a pure function.

Front ends ask here after decoding. What arrives in a header wins over a parameter of the same name
in the body, so that a gateway in front can state who is asking.
"""

import re
from collections.abc import Iterable

from server.errors import InvalidRequest
from server.settings.kinds import CASE_MATTERS

_RESERVED = frozenset(
    {"sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "binary_data_output"}
)

_OURS = frozenset({"triton_grpc_error"})
"""Metadata for the server alone, which a wide pattern finds too."""


class HeaderForwarding:
    """Which headers become parameters: those whose name the pattern finds, anywhere in it.

    Triton's rule: names match in any case, unless the pattern begins with `(?-i)`.
    """

    def __init__(self, pattern: str) -> None:
        """Raises re.error when `pattern` is no regular expression."""
        flags = 0 if pattern.startswith(CASE_MATTERS) else re.IGNORECASE
        self._found = re.compile(pattern.removeprefix(CASE_MATTERS), flags).search

    def parameters(self, headers: Iterable[tuple[str, str]]) -> dict[str, str]:
        """The parameters in `headers` (name as the client wrote it, value).

        Raises InvalidRequest for a name that is reserved for the server.
        """
        found = {name: value for name, value in headers if self._found(name) and name not in _OURS}
        for name in found:
            _check_free(name)
        return found


def _check_free(name: str) -> None:
    key = name.lower()
    if key.startswith("triton_"):
        raise InvalidRequest(
            "parameter keys starting with 'triton_' are reserved for Triton usage "
            f"and should not be specified. The header '{name}' would become one."
        )
    if key in _RESERVED:
        raise InvalidRequest(
            f"the header '{name}' cannot be forwarded as a parameter: the name is reserved; "
            "send it in the request's parameters"
        )
