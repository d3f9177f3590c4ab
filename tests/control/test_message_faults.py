"""Where a document is wrong, from msgspec's own words."""

from typing import Any

import msgspec
import pytest

from control.message_faults import Fault, fault_in


class Row(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    count: int = 0


class Table(msgspec.Struct, forbid_unknown_fields=True):
    rows: list[Row] = []


def fault(document: Any) -> Fault:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(document, Table)
    return fault_in(document, refused.value)


@pytest.mark.parametrize(
    ("document", "path", "value"),
    [
        (7, (), 7),
        ({"rows": 7}, ("rows",), 7),
        ({"rows": [{"name": "a"}, 7]}, ("rows", 1), 7),
        ({"rows": [{"name": "a", "count": "x"}]}, ("rows", 0, "count"), "x"),
        ({"rows": [{"count": 1}]}, ("rows", 0), {"count": 1}),
    ],
)
def test_a_value_of_the_wrong_kind_is_found(
    document: Any, path: tuple[str | int, ...], value: Any
) -> None:
    assert fault(document) == Fault(path, value, "")


@pytest.mark.parametrize("name", ["colour", "a` b", "", "x\ny", "x` - at `$.nowhere"])
def test_a_field_that_is_not_there_is_named(name: str) -> None:
    inside = fault({"rows": [{"name": "a", name: 1}]})
    assert (inside.path, inside.unknown) == (("rows", 0), name)
    assert fault({name: 1}).path == ()
