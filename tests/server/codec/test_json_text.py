"""JSON texts of requests: how deep they may nest, and what finding that out may cost."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.codec.json_text import load_document
from server.errors import RequestTooLarge
from support.costs import costs_less_than

TEXTS = st.text(alphabet='[]{}"\\/a', max_size=6)
DOCUMENTS = st.recursive(
    TEXTS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4)
)


def depth_of(value: Any) -> int:
    members = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth_of, members), default=0) if isinstance(value, list | dict) else 0


@given(DOCUMENTS)
def test_a_text_is_taken_exactly_when_its_brackets_outside_strings_are_not_too_deep(
    value: Any,
) -> None:
    document = {"key": value}
    text, depth = json.dumps(document).encode(), depth_of(document)
    assert load_document(text, depth) == document
    if depth > 1:
        with pytest.raises(RequestTooLarge):
            load_document(text, depth - 1)


def test_depth_is_followed_over_a_whole_large_text() -> None:
    wide = '["[",{"\\"":[]}],' * 20_000
    assert load_document(f'{{"key":[{wide}0]}}'.encode(), 5)["key"][-1] == 0
    with pytest.raises(RequestTooLarge, match="maximum of 4 levels; use --http-max-json-depth"):
        load_document(f'{{"key":[{wide}0]}}'.encode(), 4)


def test_the_cost_of_a_text_does_not_grow_with_how_deep_its_brackets_nest() -> None:
    """Peeling brackets off level by level took 7 s for 4 MiB, in which nobody is served."""
    deep, flat = brackets(96), brackets(4)
    assert costs_less_than(8, lambda: cheapest_s(deep), lambda: cheapest_s(flat))


def brackets(levels: int) -> bytes:
    unit = "[" * levels + "]" * levels
    return f'{{"key":[{unit}{f",{unit}" * ((1 << 20) // len(unit))}]}}'.encode()


def cheapest_s(text: bytes) -> float:
    """CPU seconds of the quickest of three loads."""
    took_s = []
    for _ in range(3):
        began_s = time.thread_time()
        load_document(text, 100)
        took_s.append(time.thread_time() - began_s)
    return min(took_s)
