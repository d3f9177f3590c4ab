"""Large JSON requests: what reading them costs, counted in steps of simdjson, and what they say.

The stand-in counts what simdjson does (csimdjson.pyx, tape iteration): an index and a key are
searched for from the first member on, a walk takes one step per member.
"""

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.codec import json_large, json_text
from server.codec.json_text import MOST_KEYS, load_document, load_pairs
from server.errors import RequestTooLarge


class Steps:
    def __init__(self) -> None:
        self.taken = 0

    def parser(self) -> Any:
        return SimpleNamespace(
            parse=lambda text: self.wrapped(json.loads(text, object_pairs_hook=list))
        )

    def wrapped(self, value: Any) -> Any:
        if isinstance(value, list):
            is_object = bool(value) and isinstance(value[0], tuple)
            return (CountedObject if is_object else CountedArray)(self, value)
        return value


class Counted:
    def __init__(self, steps: Steps, members: list[Any]) -> None:
        self.steps, self.members = steps, members

    def __len__(self) -> int:
        return len(self.members)

    def whole(self) -> Any:
        self.steps.taken += len(self.members)
        return list(self.members)


class CountedArray(Counted):
    as_list = Counted.whole

    def __iter__(self) -> Iterator[Any]:
        for member in self.members:
            self.steps.taken += 1
            yield self.steps.wrapped(member)

    def __getitem__(self, index: int) -> Any:
        self.steps.taken += index + 1
        return self.steps.wrapped(self.members[index])

    def as_buffer(self, of_type: str) -> bytes:
        self.steps.taken += len(self.members)
        raise TypeError(of_type)


class CountedObject(Counted):
    as_dict = Counted.whole

    def keys(self) -> Iterator[str]:
        for key, _ in self.members:
            self.steps.taken += 1
            yield key

    def __getitem__(self, wanted: str) -> Any:
        for key, value in self.members:
            self.steps.taken += 1
            if key == wanted:
                return self.steps.wrapped(value)
        raise KeyError(wanted)


FIELDS = st.integers(0, 300).map(lambda count: {f"k{index}": index for index in range(count)})
ENTRY = st.one_of(st.just({"name": "a", "data": [1]}), FIELDS.filter(lambda entry: len(entry) < 50))
ENTRIES = st.builds(lambda entry, count: [entry] * count, ENTRY, st.sampled_from([0, 1, 7, 600]))


@given(top=FIELDS, entries=ENTRIES)
def test_reading_takes_a_bounded_number_of_steps_for_each_member(
    top: dict[str, Any], entries: list[Any]
) -> None:
    text = json.dumps({"inputs": entries, **top}).encode()
    members = 1 + len(top) + len(entries) + sum(map(len, entries))
    steps = Steps()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_large, "_parser", steps.parser())
        stand_in = SimpleNamespace(Object=CountedObject, Array=CountedArray)
        patch.setattr(json_large, "simdjson", stand_in)
        json_large.load_large(text)
    assert steps.taken <= (json_large.MOST_FIELDS + 4) * (members + 1)


@given(top=FIELDS, entries=ENTRIES)
def test_both_parsers_read_the_same(top: dict[str, Any], entries: list[Any]) -> None:
    document = {"inputs": entries, **top}
    found = json_large.load_large(json.dumps(document).encode())
    assert found == document or (found is None and len(document) > json_large.MOST_FIELDS)


def test_the_last_of_two_equal_keys_counts_in_a_large_text_as_in_a_small_one() -> None:
    small = b'{"id": "a", "id": "b", "more": "'
    for text in (small + b'"}', small + b"x" * json_large.LARGE_BYTES + b'"}'):
        assert load_document(text, 100)["id"] == "b"


def test_a_text_has_so_many_keys_and_no_more() -> None:
    def text(count: int, more: str = "") -> bytes:
        return ("{" + ",".join(f'"{index}":0' for index in range(count)) + more + "}").encode()

    in_a_string = ',"s":"' + "::" * MOST_KEYS + '"'
    assert len(load_document(text(MOST_KEYS - 1, in_a_string), 100)) == MOST_KEYS
    for load in (load_document, load_pairs):
        with pytest.raises(
            RequestTooLarge, match=f"has {MOST_KEYS + 1} keys, more than the maximum of"
        ):
            load(text(MOST_KEYS + 1), 100)


def test_a_text_has_so_many_arrays_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "MOST_CONTAINERS", 100)
    assert len(load_document(b'{"a":[' + b"[]," * 98 + b"0]}", 100)["a"]) == 99
    with pytest.raises(
        RequestTooLarge, match="has 101 arrays and objects, more than the maximum of 100"
    ):
        load_document(b'{"a":[' + b"[]," * 99 + b"0]}", 100)


def test_a_text_read_as_pairs_has_so_many_values_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """64 MiB of numbers held the loop for 6 s."""
    monkeypatch.setattr(json_text, "MOST_VALUES", 100)
    assert dict(load_pairs(b'{"a":[' + b"0," * 98 + b'0],"b":",,"}', 100))["b"] == ",,"
    with pytest.raises(RequestTooLarge, match="has 101 values, more than the maximum of 100"):
        load_pairs(b'{"a":[' + b"0," * 99 + b'0],"b":0}', 100)


def test_an_array_longer_than_simdjson_counts_is_read_whole() -> None:
    """pysimdjson wrote past the end of its list, and the process died or went on with a torn
    memory: one request of 40 KB, compressed, was enough."""
    text = b'{"inputs":[],"x":[' + b"0," * (json_large.MOST_COMMAS + 1) + b"7]}"
    found = load_document(text, 100)["x"]
    assert len(found) == 1 << 24
    assert found[-1] == 7
