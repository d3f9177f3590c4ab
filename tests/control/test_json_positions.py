"""Where values are in the text of a JSON document."""

import pytest

from control.json_positions import line_and_column, offset_of

TEXT = '{\n  "steps": [\n    {"type": "optimise"},\n    {"a b": 1, "floor": 2}\n  ]\n}'


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("$", (1, 1)),
        ("$.steps", (2, 12)),
        ("$.steps[1]", (4, 5)),
        ("$.steps[1].floor", (4, 25)),
        ("$.steps[7].floor", (2, 12)),
        ("$.nothing", (1, 1)),
    ],
)
def test_value_is_found_or_the_last_on_the_way_to_it(path: str, place: tuple[int, int]) -> None:
    assert line_and_column(TEXT, offset_of(TEXT, path)) == place
