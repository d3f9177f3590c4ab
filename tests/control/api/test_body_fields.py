"""Bodies of requests: what is wrong with one, in our own words."""

from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from control.access.scopes import Role
from control.api.body_fields import ApiBody, Number, Positive, Text, meaning, read_fields
from control.http_errors import MalformedRequest


class Order(ApiBody, frozen=True):
    name: Annotated[Text, meaning("Whose it is.")]
    count: Annotated[Positive, meaning("How many.")] = 1
    role: Role | None = None
    share: Number | None = None
    note: Annotated[str, Meta(max_length=5)] = ""
    rows: list[dict[str, Any]] = msgspec.field(default_factory=list)
    scopes: list[str] | None = None
    terms: dict[str, Any] = msgspec.field(default_factory=dict)
    now: bool = False


def test_fields_not_given_are_the_defaults() -> None:
    assert read_fields(Order, {"name": "ada"}) == Order("ada")


def test_whole_number_stands_for_a_number() -> None:
    assert isinstance(read_fields(Order, {"name": "ada", "share": 3}).share, float)


@pytest.mark.parametrize(
    ("document", "field", "text"),
    [
        ([], "", "the body is a list; it must be an object"),
        (None, "", "the body is null; it must be an object"),
        ({}, "name", "the field 'name' is missing"),
        (
            {"nmae": 1},
            "nmae",
            "there is no field 'nmae'; there are name, count, role, share, note, rows, scopes, "
            "terms, now",
        ),
        ({"name": None}, "name", "name is null; it must be a string"),
        ({"name": "x" * 256}, "name", "name has 256 characters; at most 255"),
        ({"note": "too long"}, "note", "note has 8 characters; at most 5"),
        ({"name": "a\0b"}, "name", "name holds a NUL character"),
        ({"terms": {"a": [{"b": "\0"}]}}, "terms", "terms holds a NUL character"),
        ({"count": "2"}, "count", "count is '2'; it must be a whole number"),
        ({"count": 2.0}, "count", "count is 2.0; it must be a whole number"),
        ({"count": True}, "count", "count is true; it must be a whole number"),
        ({"count": 0}, "count", "count is 0; from 1 to 9223372036854775807"),
        ({"count": 2**64}, "count", f"count is {2**64}; from 1 to 9223372036854775807"),
        ({"role": "root"}, "role", "role is 'root'; give viewer, operator, admin"),
        ({"role": 3}, "role", "role is 3; give viewer, operator, admin"),
        ({"share": "much"}, "share", "share is 'much'; it must be a number"),
        ({"share": False}, "share", "share is false; it must be a number"),
        (
            {"share": 1e30},
            "share",
            "share is 1e+30; from -9223372036854775808 to 9223372036854775807",
        ),
        ({"rows": {}}, "rows", "rows is an object; it must be a list"),
        ({"rows": [{}, "x"]}, "rows", "rows holds 'x'; only objects"),
        ({"scopes": ["read", 1]}, "scopes", "scopes holds 1; only strings"),
        ({"terms": []}, "terms", "terms is a list; it must be an object"),
        ({"now": "yes"}, "now", "now is 'yes'; it must be true or false"),
    ],
)
def test_what_is_wrong_is_named_with_what_would_work(document: Any, field: str, text: str) -> None:
    given = {"name": "ada", **document} if document and "nmae" not in document else document
    with pytest.raises(MalformedRequest) as raised:
        read_fields(Order, given)
    assert (str(raised.value), raised.value.field) == (text, field)
