"""Triton's config.pbtxt, read: text in, `ModelConfig` out, or findings that say what to change."""

import re
from pathlib import Path

from google.protobuf import text_format

from repository.config.explain import explain
from repository.config.positions import Positions
from repository.errors import ConfigError
from repository.findings import Finding, reason
from repository.model import ModelConfig

__all__ = ["LARGEST_BYTES", "Finding", "decode", "parse"]

LARGEST_BYTES = 1 << 20
"""A config.pbtxt larger than this is not read."""

_PLACE = re.compile(r"^\d+:\d+ : (?:'.*': )?", re.DOTALL)


def parse(text: str, where: Path) -> ModelConfig:
    """The config in `text`, which stands in the file `where` (named in complaints, never opened).

    Raises `ConfigError`, whose findings name line, column, field, value and what is allowed.
    """
    config = ModelConfig()
    try:
        text_format.Parse(text, config)
    except (text_format.ParseError, ValueError) as error:  # ValueError: enum number too large
        findings = explain(Positions(where, text)) or [_syntax(error, where)]
        raise ConfigError(reason(findings), findings) from error
    return config


def decode(content: bytes, where: Path) -> str:
    """The text of a config file; raises `ConfigError` when it is too large or not UTF-8."""
    if len(content) > LARGEST_BYTES:
        raise _unreadable(where, f"config is larger than {LARGEST_BYTES} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unreadable(where, f"config is not UTF-8 text: {error}") from error


def _unreadable(where: Path, message: str) -> ConfigError:
    finding = Finding(where, 0, 0, "E100", message)
    return ConfigError(str(finding), [finding])


def _syntax(error: Exception, where: Path) -> Finding:
    line, column = 1, 1
    if isinstance(error, text_format.ParseError):
        line, column = error.GetLine() or 1, error.GetColumn() or 1
    return Finding(where, line, column, "E101", f"syntax error: {_PLACE.sub('', str(error))}")
