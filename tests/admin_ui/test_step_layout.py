"""Where the steps of an ensemble are drawn: below what they need, and on nothing else."""

import re
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from admin_ui.pages.step_layout import (
    ANSWER,
    BOX_WIDTH,
    REQUEST,
    PlacedBox,
    StepLayout,
    lay_out,
    links_of,
)


def step(number: int, reads: list[str], writes: list[str], condition: str = "") -> dict[str, Any]:
    return {
        "number": number,
        "inputs": {f"i{at}": tensor for at, tensor in enumerate(reads)},
        "outputs": {f"o{at}": tensor for at, tensor in enumerate(writes)},
        "condition": condition,
    }


def drawn(steps: list[dict[str, Any]], lines: int = 2) -> StepLayout:
    links = links_of(steps, ["X"], ["Y"])
    layout = lay_out({**{one["number"]: lines for one in steps}, REQUEST: 2, ANSWER: 2}, links)
    assert layout is not None
    return layout


def boxes(layout: StepLayout) -> dict[int, PlacedBox]:
    return {box.number: box for box in layout.boxes}


BRANCHES = [
    step(0, ["X"], ["pixels"]),
    step(1, ["pixels"], ["sure", "guess"]),
    step(2, ["pixels"], ["Y"], "sure < 0.9"),
    step(3, ["guess"], ["Y"], "sure >= 0.9"),
]


def test_lines_are_named_by_tensors_and_those_of_a_condition_alone_are_told_apart() -> None:
    links = {(one.source, one.target): one for one in links_of(BRANCHES, ["X"], ["Y"])}
    assert links[REQUEST, 0].words == "X"
    assert (links[1, 2].words, links[1, 2].decides) == ("sure", True)
    assert (links[1, 3].words, links[1, 3].decides) == ("guess, sure", False)
    assert {source for source, target in links if target == ANSWER} == {2, 3}


def test_a_step_stands_below_what_it_needs() -> None:
    found = boxes(drawn(BRANCHES))
    order = [found[number].y for number in (REQUEST, 0, 1, 2, ANSWER)]
    assert order == sorted(set(order))
    assert found[2].y == found[3].y


def test_a_graph_whose_few_lines_pass_many_layers_is_not_laid_out() -> None:
    """60 steps in a row, each of which reads the request as well."""
    steps = [step(at, ["X", f"t{at - 1}"] if at else ["X"], [f"t{at}"]) for at in range(60)]
    links = links_of(steps, ["X"], ["t59"])
    assert len(links) == 120
    assert lay_out({REQUEST: 2, ANSWER: 2, **dict.fromkeys(range(60), 2)}, links) is None


@st.composite
def graphs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """2 to 20 steps, each of which reads what some before it wrote."""
    count = draw(st.integers(2, 20))
    steps = []
    for number in range(count):
        known = ["X", *(f"t{one}" for one in range(number))]
        reads = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))
        steps.append(step(number, reads, [f"t{number}", *(["Y"] if number == count - 1 else [])]))
    return steps


@given(graphs())
def test_no_box_lies_on_another_and_all_are_inside(steps: list[dict[str, Any]]) -> None:
    layout = drawn(steps)
    for box in layout.boxes:
        assert layout.left <= box.x
        assert box.x + BOX_WIDTH <= layout.left + layout.width
        assert box.y >= 0
        assert box.y + box.height <= layout.height
    for one in layout.boxes:
        for other in layout.boxes:
            if one.number < other.number:
                beside = abs(one.x - other.x) >= BOX_WIDTH
                assert beside or one.y + one.height <= other.y or other.y + other.height <= one.y


@given(graphs())
def test_every_line_goes_down_from_its_box_to_its_box_and_through_no_other(
    steps: list[dict[str, Any]],
) -> None:
    layout = drawn(steps)
    found = boxes(layout)
    for placed in layout.links:
        numbers = [float(one) for one in re.findall(r"-?[\d.]+", placed.path)]
        source, target = found[placed.link.source], found[placed.link.target]
        assert source.x <= numbers[0] <= source.x + BOX_WIDTH
        assert abs(numbers[1] - source.y - source.height) < 0.2
        assert target.x <= numbers[-2] <= target.x + BOX_WIDTH
        assert abs(numbers[-1] - target.y) < 0.2
        assert layout.left <= min(xs := _xs(numbers, placed.path))
        assert max(xs) <= layout.left + layout.width
        passed = re.findall(r"([-\d.]+) ([-\d.]+)V([-\d.]+)", placed.path)
        assert all(float(high) <= float(low) for _, high, low in passed)
        for x, high, low in passed:
            for box in layout.boxes:
                if float(high) <= box.y + box.height / 2 <= float(low):
                    assert not box.x < float(x) < box.x + BOX_WIDTH


def _xs(numbers: list[float], path: str) -> list[float]:
    """All of a path that are no y; a V has a y alone."""
    pairs = re.findall(r"([-\d.]+) [-\d.]+", re.sub(r"V[-\d.]+", "", path))
    assert len(pairs) == (len(numbers) - path.count("V")) / 2
    return [float(one) for one in pairs]


@given(graphs())
def test_no_label_lies_on_another(steps: list[dict[str, Any]]) -> None:
    by_row: dict[float, list[tuple[float, float]]] = {}
    for one in drawn(steps).links:
        half = len(one.text) * 3
        by_row.setdefault(one.y, []).append((one.x - half, one.x + half))
    for spans in by_row.values():
        assert all(left[1] <= right[0] for left, right in pairwise(sorted(spans)))
