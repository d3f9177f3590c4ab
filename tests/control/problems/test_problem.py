"""Problems of one reason are one row, and fold while they are acknowledged."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from control.problems.problem import Problem, Verb, in_rows
from control.problems.views import Acknowledgement

AT = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)
FAILED = Verb("failed", "failed")
KNOWN = Acknowledgement("the bucket is back at noon", "user:ada", AT + timedelta(minutes=1))


def failed(model: str, why: str, server: str = "server-one", since: datetime = AT) -> Problem:
    subject = f"{model} version 1"
    return Problem("load", subject, FAILED, why, f"/models/{model}", since, server, model)


def cut(model: str, server: str = "server-one", since: datetime = AT) -> Problem:
    return failed(model, f"model '{model}' version 1: weights of 12 bytes", server, since)


def titles(*problems: Problem, known: dict[str, Acknowledgement] | None = None) -> list[str]:
    return [one.title for one in in_rows(problems, known or {})]


def test_those_of_one_reason_are_one_row_with_a_count_and_names() -> None:
    early = AT - timedelta(hours=1)
    (row,) = in_rows([cut("a"), cut("b", since=early), cut("c")], {})
    assert (row.title, row.count) == ("3 versions failed on server server-o", 3)
    assert row.reason == (
        "model 'a' version 1: weights of 12 bytes (a version 1, b version 1, c version 1)"
    )
    assert (row.since, row.page) == (early, "/models")
    assert row.subjects == ("a version 1", "b version 1", "c version 1")


def test_one_on_several_servers_is_one_and_names_them() -> None:
    (row,) = in_rows([cut("a"), cut("a", "elsewhere")], {})
    assert (row.title, row.count) == ("a version 1 failed on server elsewher, server-o", 1)
    assert row.page == "/models/a"


def test_another_reason_is_another_row() -> None:
    other = failed("b", "no such backend")
    assert titles(cut("a"), other) == [
        "a version 1 failed on server server-o", "b version 1 failed on server server-o",
    ]  # fmt: skip


def test_what_is_acknowledged_folds_behind_the_rest_and_a_newcomer_does_not() -> None:
    old, new = cut("a"), cut("b")
    rows = in_rows([old, new], {old.key: KNOWN})
    assert [(one.title, one.acknowledged) for one in rows] == [
        ("b version 1 failed on server server-o", None),
        ("a version 1 failed on server server-o", KNOWN),
    ]
    assert rows[0].key != rows[1].key


def test_an_acknowledgement_ends_when_the_problem_passed_and_began_anew() -> None:
    again = cut("a", since=KNOWN.at + timedelta(minutes=5))
    (row,) = in_rows([again], {again.key: KNOWN})
    assert row.acknowledged is None


def test_an_acknowledgement_ends_with_another_reason_and_not_with_other_numbers() -> None:
    problem = cut("a")
    assert failed("a", "no such backend").key != problem.key
    assert cut("a", "elsewhere").key != problem.key
    assert replace(problem, why=problem.why.replace("12", "13")).key == problem.key


def test_sentences_with_numbers_of_their_own_are_rows_of_their_own() -> None:
    def fails(model: str) -> Problem:
        return replace(failed(model, "61 of 61 requests failed"), same=f"{model} 1")

    assert len(titles(fails("a"), fails("b"))) == 2


def test_two_of_one_thing_are_one_member_of_their_row() -> None:
    (row,) = in_rows([cut("a"), cut("a")], {})
    assert len(row.members) == 1
