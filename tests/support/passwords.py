"""Passwords hashed by argon2id at its least cost, for tests of what happens around them.

At the cost of the product one hash takes 64 MiB and 0.1 s of two cores, and most tests of the
console and the control API make one for each user and one for each login.
"""

from collections.abc import Iterator

import pytest
from argon2 import PasswordHasher

from control.access import passwords


@pytest.fixture(scope="module", autouse=True)
def cheap_passwords() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords, "_hasher", PasswordHasher(1, 8, 1))
        passwords._of_nobody.cache_clear()
        yield
    passwords._of_nobody.cache_clear()
