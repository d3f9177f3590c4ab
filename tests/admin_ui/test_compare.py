"""Two versions are asked the same, through a real gateway, and their answers stand side by side."""

from collections.abc import Iterator

import pytest

from support.admin import PASSWORD, Api
from support.console import Person, person
from support.yard import Yard, write_identity, yard

pytestmark = pytest.mark.slow
PAIR = {"a": "version:1", "b": "version:2"}
CONFIG = "version_policy { all {} }\n"


class _Door(Api):
    def __init__(self, port: int) -> None:
        self.port = port


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    folder = tmp_path_factory.mktemp("yard")
    write_identity(folder, "echo", 1, 2, config=CONFIG)
    with yard(folder) as running:
        running.api("POST", "/users", {"name": "otto", "role": "viewer", "password": PASSWORD})
        running.wait_versions("echo", 1, 2)
        yield running


@pytest.fixture
def visitor(served: Yard) -> Person:
    one = Person(_Door(served.admin_port))
    assert one.log_in("otto").status == 303
    return one


def test_the_two_highest_versions_are_compared_unless_others_are_chosen(visitor: Person) -> None:
    page = visitor.get("/compare/echo").text
    assert '<option value="version:1" selected>' in page
    assert '<option value="version:2" selected>' in page
    assert "choose two that differ" in visitor.get("/compare/echo?a=version:1&b=version:1").text


def test_both_answer_the_same_request_and_say_how_they_differ(visitor: Person) -> None:
    visitor.get("/compare/echo")
    form = {**PAIR, "shape.INPUT0": "1, 3", "data.INPUT0": "1 2 3"}
    found = visitor.post("/compare/echo/call", form)
    assert found.status == 200, found.text[-800:]
    assert "echo version 1" in found.text
    assert "echo version 2" in found.text
    assert "the same" in found.text
    twin = visitor.post("/compare/echo/call", form, Accept="application/json").json
    assert [one["version"] for one in twin["answers"]["pair"]] == ["1", "2"]
    assert twin["answers"]["outputs"][0]["same"] is True


def test_what_cannot_be_sent_is_told_at_its_field(visitor: Person) -> None:
    visitor.get("/compare/echo")
    found = visitor.post("/compare/echo/call", {**PAIR, "shape.INPUT0": "nope", "data.INPUT0": "1"})
    assert found.status == 422
    assert "is no shape" in found.text


def test_who_may_not_infer_sees_the_series_alone(night: Api) -> None:
    shown = person(night, "viewer").get("/compare/digits")
    assert shown.status == 200
    assert "Nothing was served in this time" in shown.text
