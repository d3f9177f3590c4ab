"""What a pusher is told of a push that could not be decided."""

from control.errors import DatabaseFull, DatabaseGone, LostLease
from control.git.push.pre_receive import not_taken


def test_a_push_while_the_database_does_not_answer_says_when_to_push_again() -> None:
    told = not_taken(DatabaseGone("the database x.db does not answer: database is locked"))
    assert told.startswith("the push was refused: the database x.db does not answer: ")
    assert "; push again in 30 seconds, and tell this server's operator" in told


def test_a_push_that_a_full_disk_refuses_is_not_told_to_come_back_by_itself() -> None:
    told = not_taken(DatabaseFull("the disk is full; free some space and try again"))
    assert told == "the push was refused: the disk is full; free some space and try again"


def test_a_push_that_is_refused_for_what_it_is_is_told_only_that() -> None:
    assert not_taken(LostLease("the lease went to another")) == "the lease went to another"
