"""An experiment's life, and what it shares with others of its route and namespace."""

import pytest

from control.errors import Conflict, Invalid, NotFound, Stale
from control.experiments import service
from control.experiments.namespaces import takes_part
from control.experiments.views import ExperimentState
from control.sql.database import Database
from support.control import ADA, desired_revision, told
from support.experiments import draft, started, stopped


def test_an_experiment_is_made_started_stopped_and_concluded(database: Database) -> None:
    assert draft(database).state is ExperimentState.DRAFT
    revision = desired_revision(database)
    with database.change(ADA) as tx:
        running = service.start_experiment(tx, "colour", 1)
    assert (running.state, running.revision) == (ExperimentState.RUNNING, 2)
    assert running.started_at is not None
    with database.reading() as session:
        assert service.running(session) == (running,)
    assert stopped(database).state is ExperimentState.STOPPED
    assert desired_revision(database) == revision + 2
    with database.change(ADA) as tx:
        ended = service.conclude_experiment(tx, "colour", " ship b ", 3)
    assert ended.state is ExperimentState.CONCLUDED
    assert ended.conclusion is not None
    assert ended.conclusion["decision"] == "ship b"
    assert ended.conclusion["by"] == ADA.principal
    with database.reading() as session:
        assert service.get_experiment(session, "colour") == ended
        assert service.running(session) == ()
    assert [kind for kind, _ in told(database)] == [
        f"experiment.{what}" for what in ("created", "started", "stopped", "concluded")
    ]
    assert ended.document().metrics[0].minimal_effect == 0.01


def test_steps_out_of_order_are_refused_with_the_state(database: Database) -> None:
    draft(database)
    with database.change(ADA) as tx:
        with pytest.raises(Conflict, match="is draft; only one that is running can be stopped"):
            service.stop_experiment(tx, "colour")
        with pytest.raises(Conflict, match="only one that is stopped can be concluded"):
            service.conclude_experiment(tx, "colour", "ship b")
        service.start_experiment(tx, "colour")
        with pytest.raises(Conflict, match="is running; only one that is draft can be started"):
            service.start_experiment(tx, "colour")
        with pytest.raises(Conflict, match="only one that is draft can be deleted"):
            service.delete_experiment(tx, "colour")
        with pytest.raises(Stale, match="revision 2, you have 1"):
            service.stop_experiment(tx, "colour", 1)
        service.stop_experiment(tx, "colour", 2)
        with pytest.raises(Invalid, match="say in words"):
            service.conclude_experiment(tx, "colour", " \0")


def test_a_name_is_taken_once_and_an_unknown_one_is_said_with_those_there_are(
    database: Database,
) -> None:
    draft(database)
    with pytest.raises(Conflict, match="there is an experiment 'colour' already"):
        draft(database)
    with database.reading() as session, pytest.raises(NotFound, match="the latest are colour"):
        service.get_experiment(session, "color")
    with database.change(ADA) as tx:
        service.delete_experiment(tx, "colour")
    with database.reading() as session, pytest.raises(NotFound, match="the latest are none"):
        service.get_experiment(session, "colour\0")


@pytest.mark.parametrize("name", ["", "Colour", "1st", "a" * 64, "a b", "a\0"])
def test_a_bad_name_is_refused(database: Database, name: str) -> None:
    with pytest.raises(Invalid, match="cannot name an experiment"):
        draft(database, name)
    with pytest.raises(Invalid, match="route cannot be"):
        draft(database, "colour", "shop\n")


def test_a_route_has_one_experiment_at_a_time_unless_they_share_a_namespace(
    database: Database,
) -> None:
    started(database)
    with pytest.raises(Conflict, match="the route 'shop' has the experiment 'colour' running"):
        started(database, "size")
    started(database, "other", "shelf")
    stopped(database)
    started(database, "left", namespace="page", share_percent=50)
    started(database, "right", namespace="page", share_percent=50)
    with pytest.raises(Conflict, match="give both the same namespace"):
        started(database, "third", namespace="another")


def test_experiments_of_a_namespace_share_no_unit(database: Database) -> None:
    left = started(database, "left", "one", namespace="page", share_percent=60)
    with pytest.raises(Conflict, match=r"no 50 % in one piece left beside left \(60 %\)"):
        started(database, "right", "two", namespace="page", share_percent=50)
    right = started(database, "rest", "two", namespace="page", share_percent=40)
    assert (left.buckets, right.buckets) == (range(6_000), range(6_000, 10_000))
    both = [
        takes_part("page", left.buckets, f"u{number}")
        + takes_part("page", right.buckets, f"u{number}")
        for number in range(1_000)
    ]
    assert both == [1] * 1_000
    stopped(database, "left")
    third = started(database, "third", "one", namespace="page", share_percent=25)
    assert third.buckets == range(2_500)


def test_lists_are_newest_first_and_by_route_or_state(database: Database) -> None:
    for name, route in ("one", "x"), ("two", "y"), ("three", "x"):
        draft(database, name, route)
    with database.change(ADA) as tx:
        service.start_experiment(tx, "two")
    with database.reading() as session:
        listed = service.list_experiments(session).items
        assert sorted(view.name for view in listed) == ["one", "three", "two"]
        assert [view.id for view in listed] == sorted((view.id for view in listed), reverse=True)
        assert {one.name for one in service.list_experiments(session, route="x").items} == {
            "one",
            "three",
        }
        running = service.list_experiments(session, state=ExperimentState.RUNNING).items
        assert [view.name for view in running] == ["two"]
