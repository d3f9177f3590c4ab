"""What the network learns from: cuttings of scikit-learn's two photographs, and drawn patterns."""

from io import BytesIO
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_sample_image

LABELS = ("flower", "temple", "stripes", "dots")
PHOTOGRAPHS = {"flower": "flower.jpg", "temple": "china.jpg"}
SIDE = 64
MEGAPIXELS_12 = (4000, 3000)

Pixels = NDArray[np.uint8]


class Pictures(NamedTuple):
    """`pixels` UINT8 [n, 64, 64, 3]; `labels` INT64 [n], numbers of LABELS."""

    pixels: Pixels
    labels: NDArray[np.int64]


def pictures(count: int, seed: int) -> Pictures:
    """`count` pictures of each label, always the same for a seed."""
    random = np.random.default_rng(seed)
    photographs = {name: photograph(name) for name in PHOTOGRAPHS}
    made = [_picture(label, photographs, random) for _ in range(count) for label in LABELS]
    numbers = np.tile(np.arange(len(LABELS)), count)
    return Pictures(np.stack(made), numbers)


def photograph(name: str) -> Image.Image:
    """One of scikit-learn's photographs, 640 × 427."""
    return Image.fromarray(load_sample_image(PHOTOGRAPHS[name]))


def large_jpeg(name: str, size: tuple[int, int] = MEGAPIXELS_12) -> bytes:
    """The photograph as a camera would send it: a JPEG of 12 megapixels."""
    file = BytesIO()
    photograph(name).resize(size, Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
    return file.getvalue()


def _picture(
    label: str, photographs: dict[str, Image.Image], random: np.random.Generator
) -> Pixels:
    if label in photographs:
        seen = _cutting(photographs[label], random)
    elif label == "stripes":
        seen = _pattern(random, dots=False)
    else:
        seen = _pattern(random, dots=True)
    light = random.uniform(0.75, 1.25)
    noise = random.normal(0, 6, seen.shape)
    return (seen.astype(float) * light + noise).clip(0, 255).astype(np.uint8)


def _cutting(photograph: Image.Image, random: np.random.Generator) -> Pixels:
    """A square of it, perhaps mirrored."""
    width, height = photograph.size
    side = int(min(width, height) * random.uniform(0.6, 1))
    left, top = random.integers(0, width - side + 1), random.integers(0, height - side + 1)
    box = (left, top, left + side, top + side)
    seen = np.asarray(photograph.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box))
    return seen[:, ::-1] if random.random() < 0.5 else seen


def _pattern(random: np.random.Generator, *, dots: bool) -> Pixels:
    """Two colours, in stripes or dots, at any angle and width."""
    across, down = np.meshgrid(np.arange(SIDE), np.arange(SIDE))
    angle, width = random.uniform(0, np.pi), random.uniform(6, 16)
    along = (across * np.cos(angle) + down * np.sin(angle)) / width
    beside = (down * np.cos(angle) - across * np.sin(angle)) / width
    round_ones = (along % 1 - 0.5) ** 2 + (beside % 1 - 0.5) ** 2 < 0.1
    inside = round_ones if dots else along % 1 < 0.5
    one, other = random.integers(0, 256, (2, 3))
    return np.where(inside[..., None], one, other).astype(np.uint8)
