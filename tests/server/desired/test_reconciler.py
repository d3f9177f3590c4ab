"""Desired state as it comes: what is newer is in force at once, and on its way to the disk."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from control.desired import DesiredState, TokenGrant
from server.desired.reconciler import Reconciler
from server.routing.effective import TargetState

FIRST = DesiredState(1, "store", aliases={"m": {"champion": 1}})
GRANT = TokenGrant("d" * 64, "t1", "token:t1", "operator", ("infer:m",))


@dataclass
class Server:
    """One whose versions in `ready` answer, and what it was told."""

    ready: set[int] = field(default_factory=lambda: {1})
    admitted: list[Sequence[TokenGrant]] = field(default_factory=list)
    routed: list[DesiredState] = field(default_factory=list)
    loaded: list[DesiredState] = field(default_factory=list)
    kept: list[tuple[DesiredState, DesiredState | None]] = field(default_factory=list)

    def reconciler(self) -> Reconciler:
        return Reconciler(
            FIRST,
            None,
            lambda _, version: TargetState(version in self.ready, True, "is being loaded"),
            self.admitted.append,
            self.routed.append,
            self.loaded.append,
            lambda desired, in_force: self.kept.append((desired, in_force)),
        )


def test_it_begins_with_what_was_kept() -> None:
    server = Server()
    server.reconciler().start()
    assert server.routed == server.loaded == [FIRST]
    assert server.kept == [(FIRST, None)]


def test_each_newer_state_is_in_force_at_once_tokens_included() -> None:
    server = Server()
    reconciler = server.reconciler()
    states = [replace(FIRST, revision=number, grants=(GRANT,)) for number in (2, 3)]
    for state in states:
        reconciler.want(state)
    assert server.routed == server.loaded == states
    assert server.admitted == [(GRANT,)] * 2
    assert server.kept == [(state, None) for state in states]


def test_what_it_has_already_changes_nothing() -> None:
    server = Server()
    server.reconciler().want(replace(FIRST, grants=(GRANT,)))
    assert not server.admitted
    assert not server.routed


def test_an_older_revision_counts_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    older = replace(FIRST, revision=0)
    server.reconciler().want(older)
    assert server.routed == [older]
    assert "offers revision 0 after 1; a backup was restored" in caplog.text


def test_an_older_revision_of_another_store_is_not_remarked_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server()
    other = replace(FIRST, revision=0, store="other")
    server.reconciler().want(other)
    assert server.routed == [other]
    assert not caplog.text


def test_while_a_target_is_loaded_what_was_in_force_stays_and_is_kept_too() -> None:
    server = Server()
    reconciler = server.reconciler()
    moved = replace(FIRST, revision=2, aliases={"m": {"champion": 2}})
    reconciler.want(moved)
    ((desired, in_force),) = server.kept
    assert desired == moved
    assert in_force is not None
    assert server.routed[-1].aliases == in_force.aliases == {"m": {"champion": 1}}
    assert [one.subject for one in reconciler.pending] == ["alias m@champion"]

    server.ready.add(2)
    reconciler.models_changed()
    assert server.routed[-1].aliases == {"m": {"champion": 2}}
    assert server.kept[-1] == (moved, None)
    assert reconciler.pending == ()
