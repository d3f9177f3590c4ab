"""The life of a push, step by step."""

import json

import pytest

from control.deployments import pushes
from control.deployments.pushes import PushFacts
from control.errors import Conflict, Invalid, LostLease, NotFound
from control.push_states import PushState
from control.sql import leases
from control.sql.database import Database
from control.tables import Audit, Push, Version
from control.views import PushView, to_json
from repository.git.rules import RefUpdate
from support.control import ADA, desired_revision, rows, told
from support.control_deploy import (
    MAIN,
    ZEROS,
    accepted,
    commit,
    deploy,
    deployed,
    received,
    repository,
    sealed,
)


@pytest.fixture(autouse=True)
def vision(database: Database) -> None:
    repository(database)


def _get(database: Database, push_id: str) -> PushView:
    with database.reading() as session:
        return pushes.get_push(session, push_id)


def _finish(database: Database, push_id: str, state: str, reason: str = "") -> PushView:
    with database.change(ADA) as tx:
        return pushes.finish(tx, push_id, state, reason)


def test_a_push_is_received_accepted_deployed_and_served(database: Database) -> None:
    push_id = received(database, 1)
    with database.change(ADA) as tx:
        pushes.accept(tx, push_id)
    deploy(database, push_id, sealed("digits", {1: "a"}))
    view = _finish(database, push_id, "served")
    assert view.state == PushState.SERVED
    assert view.models == {"digits": sealed("digits", {1: "a"}).digest}
    assert [kind for kind, subject in told(database) if subject == f"push:{push_id}"] == [
        "push.received",
        "push.accepted",
        "push.deployed",
        "push.served",
    ]
    assert None not in (view.accepted_at, view.deployed_at, view.finished_at)


def test_every_step_leaves_an_audit_row(database: Database) -> None:
    push_id = accepted(database, 1)
    steps = [row for row in rows(database, Audit) if row.subject == f"push:{push_id}"]
    assert [(row.action, row.before, row.after["state"]) for row in steps] == [
        ("push.received", None, "received"),
        ("push.accepted", {"state": "received"}, "accepted"),
    ]
    assert {(row.actor, row.via, row.address) for row in steps} == {
        (ADA.principal, ADA.via, ADA.address)
    }


def test_a_push_tells_who_pushed_what_from_where(database: Database) -> None:
    facts = PushFacts("Sub\0ject", "A" * 300, "token:t1", "192.0.2.9", "all is well")
    with database.change(ADA) as tx:
        update = RefUpdate(ZEROS, commit(1), MAIN)
        push_id = pushes.receive(tx, "vision", update, facts).id
    shown = json.loads(to_json(_get(database, push_id)))
    assert shown["subject"] == "Subject"
    assert shown["author"] == "A" * 254 + "…"
    assert (shown["pusher"], shown["address"]) == ("token:t1", "192.0.2.9")
    assert (shown["repository"], shown["state"], shown["report"]) == (
        "vision",
        "received",
        "all is well",
    )
    assert shown["received_at"].endswith("Z")
    assert shown["finished_at"] is None


def test_a_refused_push_keeps_what_the_pusher_was_told(database: Database) -> None:
    with database.change(ADA) as tx:
        update = RefUpdate(ZEROS, commit(1), MAIN)
        push_id = pushes.refuse(tx, "vision", update, PushFacts(), "E103 too many").id
    view = _get(database, push_id)
    assert (view.state, view.report) == ("refused", "E103 too many")
    assert view.finished_at is not None
    none = "is refused; it cannot become accepted"
    with pytest.raises(Conflict, match=none), database.change(ADA) as tx:
        pushes.accept(tx, push_id)


def test_another_ref_than_the_deploy_ref_is_only_stored(database: Database) -> None:
    push_id = accepted(database, 1, ref="refs/heads/try")
    assert _get(database, push_id).state == "stored"
    with pytest.raises(Conflict, match="is stored; it cannot become deployed"):
        deploy(database, push_id, sealed("digits", {1: "a"}))


def test_steps_may_be_repeated_without_effect(database: Database) -> None:
    push_id = accepted(database, 1)
    deploy(database, push_id, sealed("digits", {1: "a"}))
    _finish(database, push_id, "served")
    before, revision = told(database), desired_revision(database)
    with database.change(ADA) as tx:
        assert pushes.accept(tx, push_id).state == "served"
    assert deploy(database, push_id, sealed("digits", {1: "a"})).state == "served"
    assert _finish(database, push_id, "served").state == "served"
    assert (told(database), desired_revision(database)) == (before, revision)


def test_a_step_that_does_not_follow_is_refused(database: Database) -> None:
    push_id = received(database, 1)
    with pytest.raises(Conflict, match="is received; it cannot become deployed"):
        deploy(database, push_id, sealed("digits", {1: "a"}))
    with pytest.raises(Conflict, match="is received; it cannot become served"):
        _finish(database, push_id, "served")
    with pytest.raises(NotFound, match="no push 'nowhere'"):
        _finish(database, "nowhere", "served")


def test_a_push_given_up_too_early_is_accepted_when_its_ref_has_moved(database: Database) -> None:
    push_id = received(database, 1)
    assert _finish(database, push_id, "abandoned", "its ref never moved").finished_at is not None
    with database.change(ADA) as tx:
        view = pushes.accept(tx, push_id)
    assert (view.state, view.reason, view.finished_at) == ("accepted", "", None)


def test_an_older_push_is_not_deployed_over_a_newer_one(database: Database) -> None:
    older, newer = accepted(database, 1), accepted(database, 2)
    deploy(database, newer, sealed("digits", {1: "a"}, "newer"))
    revision = desired_revision(database)
    view = deploy(database, older, sealed("digits", {1: "a"}, "older"))
    assert view.state == "superseded"
    assert newer in view.reason
    assert desired_revision(database) == revision
    assert deploy(database, older, sealed("digits", {1: "a"}, "older")).state == "superseded"


def test_other_repositories_do_not_supersede(database: Database) -> None:
    repository(database, "speech")
    older = accepted(database, 1)
    deployed(database, 2, sealed("words", {1: "w"}), name="speech")
    assert deploy(database, older, sealed("digits", {1: "a"})).state == "deployed"


def test_an_operator_deploys_an_older_commit(database: Database) -> None:
    deployed(database, 1, sealed("digits", {1: "a"}))
    deployed(database, 2, sealed("digits", {1: "a", 2: "b"}))
    with database.change(ADA) as tx:
        wish = pushes.deploy_commit(tx, "vision", commit(1), MAIN)
    assert (wish.kind, wish.state, wish.pusher) == ("deploy", "accepted", ADA.principal)
    view = deploy(database, wish.id, sealed("digits", {1: "a"}))
    assert (view.state, view.new_commit) == ("deployed", commit(1))
    assert view.models == {"digits": sealed("digits", {1: "a"}).digest}


def test_an_operator_is_told_what_the_commits_pusher_was_told(database: Database) -> None:
    with database.change(ADA) as tx:
        for report in ("an older report", "warning: E455"):
            update = RefUpdate(ZEROS, commit(1), "refs/heads/try")
            pushes.receive(tx, "vision", update, PushFacts(pusher="user:bob", report=report))
        told_bob = pushes.deploy_commit(tx, "vision", commit(1), MAIN).report
        nothing = pushes.deploy_commit(tx, "vision", commit(2), MAIN).report
    assert told_bob == "What user:bob was told who pushed it:\nwarning: E455"
    assert nothing == ""


@pytest.mark.parametrize("wrong", ["", "main", "abc", ZEROS, "--upload-pack=x"])
def test_only_a_whole_commit_id_is_deployed(database: Database, wrong: str) -> None:
    with pytest.raises(Invalid, match="not a whole commit id"), database.change(ADA) as tx:
        pushes.deploy_commit(tx, "vision", wrong, MAIN)


def test_a_deployer_that_lost_its_lease_deploys_nothing(database: Database) -> None:
    push_id = accepted(database, 1)
    fence = leases.take(database, "deployer", "first", 60)
    leases.release(database, "deployer", "first")
    assert leases.take(database, "deployer", "second", 60) is not None
    with pytest.raises(LostLease), database.change(ADA, fence) as tx:
        pushes.deploy(tx, push_id, {"digits": sealed("digits", {1: "a"})})
    assert _get(database, push_id).state == "accepted"
    assert rows(database, Version) == []


def test_the_fence_is_written_with_the_step(database: Database) -> None:
    push_id = accepted(database, 1)
    fence = leases.take(database, "deployer", "me", 60)
    assert fence is not None
    with database.change(ADA, fence) as tx:
        pushes.deploy(tx, push_id, {"digits": sealed("digits", {1: "a"})})
    assert [row.fence for row in rows(database, Push)] == [fence.number]


def test_unfinished_pushes_are_told_in_the_order_in_which_they_came(database: Database) -> None:
    first, second = received(database, 1), accepted(database, 2)
    third = deployed(database, 3, sealed("digits", {1: "a"})).id
    served = deployed(database, 4, sealed("digits", {1: "a"}, "x")).id
    _finish(database, served, "served")
    accepted(database, 5, ref="refs/heads/try")
    with database.reading() as session:
        assert [push.id for push in pushes.unfinished(session)] == [first, second, third]


def test_pushes_are_listed_newest_first_and_filtered(database: Database) -> None:
    repository(database, "speech")
    first, second = received(database, 1), accepted(database, 2)
    other = accepted(database, 3, name="speech")
    with database.reading() as session:
        page = pushes.list_pushes(session, limit=2)
        assert [push.id for push in page.items] == [other, second]
        rest = pushes.list_pushes(session, cursor=page.next)
        assert [push.id for push in rest.items] == [first]
        mine = pushes.list_pushes(session, repository="vision", state="accepted")
        assert [push.id for push in mine.items] == [second]
        with pytest.raises(Invalid, match="'gone' is no state of a push; received, accepted"):
            pushes.list_pushes(session, state="gone")
        with pytest.raises(NotFound, match="no repository 'x'"):
            pushes.list_pushes(session, repository="x")


def test_a_failure_says_why(database: Database) -> None:
    push_id = deployed(database, 1, sealed("digits", {1: "a"})).id
    assert _finish(database, push_id, "failed", "weights missing").reason == "weights missing"
    with pytest.raises(Conflict, match="is failed; it cannot become served"):
        _finish(database, push_id, "served")


def test_what_moved_nothing_is_forgotten_after_a_while_and_the_rest_stays(
    database: Database,
) -> None:
    served = accepted(database, 1)
    deploy(database, served, sealed("digits", {1: "a"}))
    _finish(database, served, "served")
    _finish(database, received(database, 2), "abandoned")
    with database.change(ADA) as tx:
        update = RefUpdate(ZEROS, commit(3), MAIN)
        pushes.refuse(tx, "vision", update, PushFacts(), "E103 too many")
    with database.change(ADA) as tx:
        pushes.forget(tx)
    assert len(rows(database, Push)) == 3
    with database.change(ADA) as tx:
        tx.now += pushes.KEPT
        pushes.forget(tx)
    assert [row.id for row in rows(database, Push)] == [served]
