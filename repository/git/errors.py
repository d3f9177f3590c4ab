"""What can go wrong between us and git.

GitError
├── GitMissing          there is no git on this machine
├── GitFailed           git ended with an error: its command, exit status and last words
│   └── GitTimedOut     git took too long, or no byte moved for too long, and was killed
├── BadGitName             a repository, ref, revision or key whose name we do not let near git
├── UnknownRepository   no repository of that name
├── RepositoryExists    there is one of that name already
├── UnknownRevision     the repository has no such commit
├── Busy                as many exchanges with this repository as may run at once
├── BadBody             a request's body that cannot be inflated
│   ├── BodyTooLarge    it has more bytes than were allowed
│   └── TooManyCommands a push names more refs than git should have to remember
├── BadQuarantine       a quarantine that is not one of this repository
├── WrongObject         an object is missing, or is not what was asked for
└── BadSocketPath       the hooks' socket cannot lie where it was asked to
"""

import signal

from repository.errors import RepositoryError


class GitError(RepositoryError):
    """Base of everything `repository.git` raises."""


class GitMissing(GitError):
    """There is no git to run."""


class GitFailed(GitError):
    """git ended with an error; `status` is its exit status, negative for a signal."""

    def __init__(self, command: str, status: int, words: str) -> None:
        super().__init__(f"git {command} ended with status {status}: {words or 'it said nothing'}")
        self.status = status
        self.words = words

    @property
    def was_asked_oddly(self) -> bool:
        """Whether git ended itself over a packet that it has no case for: it calls that a bug."""
        return self.status == -signal.SIGABRT and "BUG: " in self.words


class GitTimedOut(GitFailed):
    """git was killed because it took longer than it was given."""


class BadGitName(GitError):
    """A name that is not let near git; the message says what would be accepted."""


class UnknownRepository(GitError):
    """No repository of that name."""


class RepositoryExists(GitError):
    """A repository of that name is there already."""


class UnknownRevision(GitError):
    """The repository has no such commit."""


class Busy(GitError):
    """The repository has as many exchanges as may run at once; try again soon."""


class BadBody(GitError):
    """A request's body cannot be inflated."""


class BodyTooLarge(BadBody):
    """A request's body has more bytes than were allowed."""


class TooManyCommands(BadBody):
    """A push names more refs, or says more about them, than we let through to git."""


class BadQuarantine(GitError):
    """A quarantine that does not belong to the repository."""


class WrongObject(GitError):
    """An object is missing, or has not the type or size that was asked for."""


class BadSocketPath(GitError):
    """The hooks' socket cannot lie at this path."""
