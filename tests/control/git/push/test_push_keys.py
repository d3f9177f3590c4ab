"""Keys of pushes: found while the push is under way, and never again."""

from contextlib import ExitStack

import pytest

from control.access.scopes import Principal, Role
from control.git.push.pre_receive import PushContext
from control.git.push.push_keys import LIFETIME_S, MOST_PUSHES, PushKeys
from repository.git.errors import Busy

PUSHING = PushContext(Principal("user:ada", Role.OPERATOR), "192.0.2.7", "zoo")


def test_a_key_is_found_until_its_push_ends() -> None:
    keys = PushKeys()
    with keys.issued(PUSHING) as key:
        assert keys.find(key) is PUSHING
    assert keys.find(key) is None
    assert len(keys) == 0


def test_a_key_that_was_never_given_is_nobodys() -> None:
    assert PushKeys().find("") is None


def test_a_key_does_not_outlive_its_time() -> None:
    now = 0.0
    keys = PushKeys(lambda: now)
    with keys.issued(PUSHING) as key:
        now = LIFETIME_S
        assert keys.find(key) is None


def test_there_is_a_bound_on_pushes_under_way() -> None:
    keys = PushKeys()
    with ExitStack() as stack:
        for _ in range(MOST_PUSHES):
            stack.enter_context(keys.issued(PUSHING))
        with pytest.raises(Busy), keys.issued(PUSHING):
            pass
    assert len(keys) == 0
