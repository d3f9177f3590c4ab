"""A picture's file to the numbers of a model: our step beside other libraries, on one thread.

`python -m benchmarks.pictures` prints CPU-ms of each for a JPEG of 12 megapixels and for one of
500 × 375, and how far its values are from those of a whole decoding by Pillow. Libraries that are
not installed are left out: `pip install simplejpeg opencv-python-headless` brings them.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from backends.registry import backend_of
from backends.seam import Batch, Device
from repository.config.tensors import Array
from repository.model import ModelConfig, ModelVersion
from schedulers.request import InferRequest

SIDE, TARGET = 224, (224, 224)
ROUNDS = {"12 megapixels": 12, "500 × 375": 100}
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)

Prepare = Callable[[bytes], Array]
"""A JPEG file → FP32 [3, 224, 224], normalised."""


class PictureTiming(NamedTuple):
    """`cpu_ms`: the least of the rounds. `apart`: mean difference of the values, of 255."""

    name: str
    cpu_ms: float
    apart: float


def main() -> None:
    """Print a table for each picture."""
    files = {"12 megapixels": jpeg(4000, 3000), "500 × 375": jpeg(500, 375)}
    ways = dict(_ways())
    for picture, data in files.items():
        rows = measure(ways, data, ROUNDS[picture])
        print(f"\nJPEG of {picture}, {len(data) / 1e6:.2f} MB, to {SIDE} × {SIDE}\n")
        print("| | CPU-ms | values apart, of 255 |\n|---|---|---|")
        for row in rows:
            print(f"| {row.name} | {row.cpu_ms:.1f} | {row.apart:.1f} |")


def measure(ways: dict[str, Prepare], data: bytes, rounds: int) -> list[PictureTiming]:
    """All ways in turn, so that a busy machine is busy for all of them."""
    whole = _pillow_whole(data)
    best = dict.fromkeys(ways, float("inf"))
    apart = {
        name: float(np.abs((way(data) - whole) * STD[:, None, None]).mean()) * 255
        for name, way in ways.items()
    }
    for _ in range(rounds):
        for name, way in ways.items():
            began = time.thread_time()
            way(data)
            best[name] = min(best[name], time.thread_time() - began)
    return [PictureTiming(name, best[name] * 1000, apart[name]) for name in ways]


def jpeg(width: int, height: int) -> bytes:
    """Soft shapes with the noise of a camera, always the same."""
    random = np.random.default_rng(18)
    coarse = Image.fromarray(random.integers(0, 256, (24, 32, 3), dtype=np.uint8))
    soft = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC)).astype(np.int16)
    noisy = (soft + random.integers(-6, 7, soft.shape)).clip(0, 255).astype(np.uint8)
    file = BytesIO()
    Image.fromarray(noisy).save(file, "JPEG", quality=88)
    return file.getvalue()


def _ways() -> Iterator[tuple[str, Prepare]]:
    yield "the step `image`", _step()
    yield "the step `image`, filter box", _step(filter="box")
    yield "Pillow, whole", _pillow_whole
    if find_spec("cv2") is None:
        return
    import cv2

    cv2.setNumThreads(1)

    def whole(data: bytes) -> Array:
        found = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        return _normalised(cv2.resize(found, TARGET, interpolation=cv2.INTER_AREA)[:, :, ::-1])

    yield "OpenCV, whole, INTER_AREA", whole
    if find_spec("simplejpeg") is None:
        return
    import simplejpeg

    def scaled(data: bytes) -> Array:
        found = simplejpeg.decode_jpeg(data, "RGB", min_height=2 * SIDE, min_width=2 * SIDE)
        return _normalised(cv2.resize(found, TARGET, interpolation=cv2.INTER_AREA))

    yield "simplejpeg, scaled, and OpenCV's INTER_AREA", scaled


def _step(**more: str) -> Prepare:
    parameters = {
        "size": str(SIDE),
        "resize": "stretch",
        "mean": ",".join(map(str, MEAN)),
        "std": ",".join(map(str, STD)),
        **more,
    }
    config = ModelConfig(name="image", backend="image")
    for key, text in parameters.items():
        config.parameters[key].string_value = text
    folder = Path(tempfile.gettempdir())
    written = ModelVersion("image", 1, folder, folder, config, "")
    backend = backend_of("image")
    version = ModelVersion("image", 1, folder, folder, backend.complete(written, 1), "")
    (instance,) = backend.load(version, Device("cpu", 0, 1), 1).instances

    def prepare(data: bytes) -> Array:
        array: Array = np.empty((1, 1), np.object_)
        array[0, 0] = data
        request = InferRequest("image", 1, {"IMAGE": array}, 1, None, 0)
        (result,) = instance.execute(Batch((request,), (1,), True)).results
        assert not isinstance(result, Exception), result
        found: Array = result["PIXELS"][0]
        return found

    return prepare


def _pillow_whole(data: bytes) -> Array:
    with Image.open(BytesIO(data)) as picture:
        return _normalised(np.asarray(picture.resize(TARGET, Image.Resampling.BILINEAR)))


def _normalised(pixels: Any) -> Array:
    """As quick as the step does it."""
    found: Array = np.empty((3, SIDE, SIDE), np.float32)
    for channel in range(3):
        factor = np.float32(1 / 255 / STD[channel])
        np.multiply(pixels[:, :, channel], factor, out=found[channel])
        found[channel] -= np.float32(MEAN[channel] / STD[channel])
    return found


if __name__ == "__main__":
    main()
