"""What can be wrong with a model repository.

RepositoryError
├── ConfigError       config.pbtxt cannot be read: file, line, column, field, value, what is allowed
├── BadModel          the folder cannot be served: says why and what would work
├── BadRepository     a repository's root is missing or cannot be listed
├── DiskFull          no room, or no quota, to store a file
├── BadSignature      a model's signature is missing, broken or not by a trusted key
└── NoSigning         the extra `signing` is not installed
"""

from collections.abc import Sequence

from repository.findings import Finding


class RepositoryError(Exception):
    """Base of everything `repository` raises; the message is meant for the model's owner."""


class ConfigError(RepositoryError):
    """A config.pbtxt that cannot be read or contradicts itself; `findings` says where."""

    def __init__(self, message: str, findings: Sequence[Finding] = ()) -> None:
        super().__init__(message)
        self.findings = tuple(findings)


class BadModel(RepositoryError):
    """A model folder that cannot be served as it stands."""


class BadRepository(RepositoryError):
    """A repository's root folder is missing or cannot be listed."""


class DiskFull(RepositoryError):
    """No room, or no quota, to store a file; what had been written of it is removed."""


class BadSignature(RepositoryError):
    """A model's signature is missing, broken, not by a trusted key, or not of these files."""


class NoSigning(RepositoryError):
    """Signatures cannot be checked or made: the extra `signing` is not installed."""
