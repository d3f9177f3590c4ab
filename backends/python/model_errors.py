"""The errors that python models raise and answer with, under Triton's names."""


class TritonModelException(Exception):
    """Raised by, and to be raised in, python models."""

    def message(self) -> str:
        """The text."""
        return str(self)


class TritonError:
    """An error a model answers one request with: a text and one of eight codes."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        """Any other code than the eight stands for INTERNAL."""
        self._message = str(message)
        self._code = code if code in range(8) else self.INTERNAL

    def message(self) -> str:
        """The text."""
        return self._message

    def code(self) -> int:
        """One of the class's constants."""
        return self._code

    def __str__(self) -> str:
        return self._message
