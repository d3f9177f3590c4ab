"""What can go wrong between a URL and a staging folder.

SourceError
├── BadSource         the URL cannot be used: says why and what would work
├── FetchFailed       the store refuses, or did not deliver: names the file and the byte
│   └── Interrupted   broke off; another attempt may go on from where it stopped
├── TooLarge          more bytes or files than the limits allow
├── BadArchive        an archive that cannot be read, or that holds what is refused
├── BadLayout         what was fetched is no model: lists what was found
└── WrongDigest       what was fetched is not what was expected: names both digests
"""

from repository.errors import RepositoryError


class SourceError(RepositoryError):
    """Base of everything `repository.sources` raises; the message is meant for who gave the URL."""


class BadSource(SourceError):
    """A URL that is malformed, not allowed, or leads where the server does not go."""


class FetchFailed(SourceError):
    """The store refused, or the transfer was given up; what has arrived is kept for a next call."""


class Interrupted(FetchFailed):
    """One attempt ended early; `after_s` is how long the store asked to be left alone, 0 if not."""

    def __init__(self, message: str, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.after_s = after_s


class TooLarge(SourceError):
    """The source has more bytes or files than the limits allow."""


class BadArchive(SourceError):
    """An archive that is damaged, a bomb, or has entries that are not plain files."""


class BadLayout(SourceError):
    """The files are neither a model folder, nor a version, nor a checkpoint."""


class WrongDigest(SourceError):
    """The fetched tree has another digest than the expected one; the staging folder is empty."""
