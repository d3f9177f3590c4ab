"""What can be wrong with a large file or with a request for one.

LfsError
├── BadPointer        a file is nearly, but not quite, a Git LFS pointer
├── BadLfsName           an oid or a repository's name that cannot be one
├── BadBatch          a batch request that cannot be answered object by object
│   ├── BatchTooLarge     it names too many objects
│   └── WrongAlgorithm    it wants another hash than sha256
├── BadToken          a transfer's token is forged, expired or for something else
├── UnknownObject     the repository has no such object
├── BadRange          a range begins behind the object's end
└── BadUpload         what was sent is not the object; nothing of it is kept
    ├── WrongSize         longer or shorter than announced
    ├── WrongHash         another content than its oid says
    └── Stalled           no byte came for too long

A full disk is `repository.errors.DiskFull`.
"""

from repository.errors import RepositoryError


class LfsError(RepositoryError):
    """Base of everything `repository.lfs` raises; the message is meant for the pusher."""


class BadPointer(LfsError):
    """A file that is nearly, but not quite, a Git LFS pointer."""


class BadLfsName(LfsError):
    """An oid or a repository's name that cannot be one."""


class BadBatch(LfsError):
    """A batch request that cannot be answered object by object."""


class BatchTooLarge(BadBatch):
    """A batch request that names too many objects."""


class WrongAlgorithm(BadBatch):
    """A batch request wants another hash than sha256."""


class BadToken(LfsError):
    """A transfer's token is forged, expired or for something else."""


class UnknownObject(LfsError):
    """The repository has no such object, whatever other repositories have."""


class BadRange(LfsError):
    """A range begins behind the object's end; `size_bytes` is how long the object is."""

    def __init__(self, message: str, size_bytes: int) -> None:
        super().__init__(message)
        self.size_bytes = size_bytes


class BadUpload(LfsError):
    """What was sent is not the object; nothing of it is kept."""


class WrongSize(BadUpload):
    """An upload is longer or shorter than announced."""


class WrongHash(BadUpload):
    """A content's sha256 is not its oid."""


class UploadStalled(BadUpload):
    """No byte of an upload came for too long."""
