"""What can be wrong with a stored snapshot or with what is to become one.

SnapshotError
├── BadEntry          a file cannot be part of a snapshot: its path, or a second one of its name
├── UnknownSnapshot   there is none with this digest
└── DamagedSnapshot   its files are no longer what its digest says: which, and what to do

A full disk is `repository.errors.DiskFull`.
"""

from repository.errors import RepositoryError


class SnapshotError(RepositoryError):
    """Base of everything `repository.snapshots` raises."""


class BadEntry(SnapshotError):
    """A file cannot be part of a snapshot."""


class UnknownSnapshot(SnapshotError):
    """There is no snapshot with this digest."""


class DamagedSnapshot(SnapshotError):
    """A snapshot's files are no longer what its digest says."""
