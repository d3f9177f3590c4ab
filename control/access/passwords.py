"""Passwords: what is accepted as one, and argon2id over it, at the library's own cost."""

import threading
from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import VerifyMismatchError

from control.errors import Invalid, TooMany

LEAST_CHARS, MOST_CHARS = 12, 1024
AT_ONCE, WAIT_S = 4, 2.0
"""Each hashing takes 64 MiB; so many may run in this process, and others wait so long."""

_hasher = PasswordHasher()
_places = threading.BoundedSemaphore(AT_ONCE)


def check_password_text(name: str, password: str) -> None:
    """Raises Invalid for a password that the user `name` should not have."""
    if not LEAST_CHARS <= len(password) <= MOST_CHARS:
        raise Invalid(
            f"a password has {LEAST_CHARS} to {MOST_CHARS} characters, this one has "
            f"{len(password)}",
            "password",
        )
    if password.casefold() == name.casefold():
        raise Invalid("a password differs from the user's name", "password")


class PasswordHash(str):
    """The hash of a password that was found fit for its user."""


def hash_of_new(name: str, password: str) -> PasswordHash:
    """For `create_user` and `change_user`: made before their transaction begins, which others wait
    for. Raises Invalid, TooMany."""
    check_password_text(name, password)
    return PasswordHash(hash_password(password))


def hash_password(password: str) -> str:
    """argon2id's text, with its parameters and salt. Raises TooMany."""
    _enter()
    try:
        return _hasher.hash(_bytes(password))
    finally:
        _places.release()


def matches(hashed: str | None, password: str) -> bool:
    """Whether `password` is the one; for nobody's (None) it takes as long to say no.

    Raises TooMany.
    """
    against = hashed or _of_nobody()
    _enter()
    try:
        _hasher.verify(against, _bytes(password))
    except VerifyMismatchError:
        return False
    finally:
        _places.release()
    return hashed is not None


def is_outdated(hashed: str) -> bool:
    """Whether it was made with other parameters than today's."""
    return _hasher.check_needs_rehash(hashed)


@cache
def _of_nobody() -> str:
    return hash_password("nobody's password")


def _enter() -> None:
    if not _places.acquire(timeout=WAIT_S):
        raise TooMany("too many logins at once; try again in a moment", WAIT_S)


def _bytes(password: str) -> bytes:
    return password.encode("utf-8", "surrogatepass")  # JSON can spell lone surrogates
