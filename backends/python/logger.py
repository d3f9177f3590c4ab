"""The `Logger` of python models: marked lines on stderr, which the server's log takes apart."""

import sys
from typing import Any

from repository.process.output import LEVEL_MARK


class Logger:
    """Writes to the server's log, under the model's name."""

    INFO, WARNING, ERROR, VERBOSE = "I", "W", "E", "V"

    @classmethod
    def log(cls, message: Any, level: str = INFO) -> None:
        """Log at one of the class's levels."""
        lines = str(message).splitlines()
        sys.stderr.write("".join(f"{LEVEL_MARK}{level} {line}\n" for line in lines))
        sys.stderr.flush()

    @classmethod
    def log_info(cls, message: Any) -> None:
        """Log for information."""
        cls.log(message, cls.INFO)

    @classmethod
    def log_warn(cls, message: Any) -> None:
        """Log a warning."""
        cls.log(message, cls.WARNING)

    @classmethod
    def log_error(cls, message: Any) -> None:
        """Log an error."""
        cls.log(message, cls.ERROR)

    @classmethod
    def log_verbose(cls, message: Any) -> None:
        """Log for debugging."""
        cls.log(message, cls.VERBOSE)
