"""The requests of several servers are one list, in the order that was asked for."""

from control.api.resources.requests import merged
from control.gateways.peers import ServerAnswers
from control.gateways.queries import AnsweredRequest, AnsweredRequests, RequestsQuery


def one(name: str, at: float, queue_s: float, compute_s: float) -> AnsweredRequest:
    return AnsweredRequest(name, "", at, "m", 1, "", 0, queue_s, compute_s, "ok", "")


FOUND = ServerAnswers(
    {
        "b": AnsweredRequests((one("b2", 4.0, 0.0, 0.1), one("b1", 1.0, 0.3, 0.3)), 7, 50),
        "a": AnsweredRequests((one("a2", 3.0, 0.2, 0.1), one("a1", 2.0, 0.0, 0.2)), 2, 30),
    },
    {"c": "it did not answer within 5 s"},
)


def test_the_newest_of_all_servers_come_first() -> None:
    shown = merged(FOUND, RequestsQuery(limit=3))
    assert [(row.id, row.server) for row in shown.items] == [("b2", "b"), ("a2", "a"), ("a1", "a")]
    assert (shown.found, shown.kept, shown.servers) == (9, 80, ["a", "b"])
    assert [(row.server, row.reason) for row in shown.silent] == [
        ("c", "it did not answer within 5 s")
    ]


def test_the_slowest_of_all_servers_come_first() -> None:
    shown = merged(FOUND, RequestsQuery(limit=10, slowest=True))
    assert [row.id for row in shown.items] == ["b1", "a2", "a1", "b2"]
