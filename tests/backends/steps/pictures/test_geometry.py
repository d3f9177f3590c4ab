"""Where a picture lands: torchvision's rounding, and the way back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.steps.pictures.geometry import place

SIDES = st.integers(1, 5000)


@pytest.mark.parametrize(
    ("source", "target", "resize", "side", "scaled", "offset"),
    [
        ((500, 375), (224, 224), "crop", 256, (341, 256), (58, 16)),
        ((375, 500), (224, 224), "crop", 256, (256, 341), (16, 58)),
        ((500, 375), (224, 224), "crop", None, (299, 224), (38, 0)),
        ((500, 375), (200, 100), "stretch", None, (200, 100), (0, 0)),
        ((1280, 720), (640, 640), "letterbox", None, (640, 360), (0, -140)),
        ((100, 400), (640, 640), "letterbox", None, (160, 640), (-240, 0)),
    ],
)
def test_a_picture_is_placed(
    source: tuple[int, int],
    target: tuple[int, int],
    resize: str,
    side: int | None,
    scaled: tuple[int, int],
    offset: tuple[int, int],
) -> None:
    placed = place(source, target, resize, side)
    assert (placed.scaled, placed.offset) == (scaled, offset)


@given(st.tuples(SIDES, SIDES), st.tuples(SIDES, SIDES))
def test_a_letterbox_shows_the_whole_picture_and_a_crop_leaves_no_border(
    source: tuple[int, int], target: tuple[int, int]
) -> None:
    boxed, cropped = place(source, target, "letterbox", None), place(source, target, "crop", None)
    for axis in (0, 1):
        assert 1 <= boxed.scaled[axis] <= target[axis]
        assert boxed.offset[axis] <= 0
        assert cropped.scaled[axis] >= target[axis]
        assert 0 <= cropped.offset[axis] <= cropped.scaled[axis] - target[axis]


def test_the_mapping_leads_from_the_source_to_the_target() -> None:
    wide, high, right, down, *size = place((1280, 720), (640, 640), "letterbox", None).mapping()
    assert (1280 * wide + right, 720 * high + down) == (640, 500)
    assert (0 * wide + right, 0 * high + down) == (0, 140)
    assert size == [1280, 720]
