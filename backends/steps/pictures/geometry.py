"""Which part of a picture lands where in the model's: crop, stretch and letterbox. Pure."""

from typing import NamedTuple

Size = tuple[int, int]
"""Width, height."""


class PicturePlacement(NamedTuple):
    """Resize to `scaled`, then put the pixel `offset` of that into the corner of the target: an
    offset above 0 cuts off, one below leaves a border.

    Sizes are pixels of the upright picture.
    """

    source: Size
    scaled: Size
    offset: Size

    def mapping(self) -> tuple[float, float, float, float, float, float]:
        """From the source's coordinates to the target's: factors and shifts of x and y (target =
        source × factor + shift), and the source's size."""
        (width, height), (wide, high), (left, top) = self
        return wide / width, high / height, -left, -top, width, height


def place(source: Size, target: Size, resize: str, shortest_side: int | None) -> PicturePlacement:
    """Where a picture of size `source` lands. `resize`: as the parameter of the step.

    Rounds as torchvision's Resize and CenterCrop do.
    """
    if resize == "stretch":
        return PicturePlacement(source, target, (0, 0))
    width, height = source
    if resize == "letterbox":
        factor = min(target[0] / width, target[1] / height)
        scaled = (
            min(max(round(width * factor), 1), target[0]),
            min(max(round(height * factor), 1), target[1]),
        )
        return PicturePlacement(
            source, scaled, (-((target[0] - scaled[0]) // 2), -((target[1] - scaled[1]) // 2))
        )
    if shortest_side is None:
        factor = max(target[0] / width, target[1] / height)
        scaled = (max(round(width * factor), target[0]), max(round(height * factor), target[1]))
    else:
        short = min(width, height)
        scaled = (shortest_side * width // short, shortest_side * height // short)
    left, top = (round((have - want) / 2) for have, want in zip(scaled, target, strict=True))
    return PicturePlacement(source, scaled, (left, top))
