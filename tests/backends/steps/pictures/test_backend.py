"""The step `image`, against Pillow's own resize of the whole picture."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from backends.errors import LoadFailed, ModelError
from backends.registry import backend_of
from repository.config.tensors import Array
from support.pictures import answered, ask, column, file_of, gradient, png_head, step, step_config
from support.runtime import make_version

WHOLE = gradient(600, 400)
OUTPUT = 'output { name: "PIXELS" data_type: %s dims: [ %s ] }'


def pixels(folder: Path, data: bytes, tensors: str = "", **parameters: str) -> Array:
    instance = step(folder, "image", tensors, **parameters)
    found: Array = answered(instance, IMAGE=column(data))["PIXELS"][0]
    return found


def bytes_of(folder: Path, data: bytes, **parameters: str) -> Array:
    """Height, width, channels."""
    return pixels(
        folder, data, 'output { name: "PIXELS" data_type: TYPE_UINT8 }', layout="NHWC", **parameters
    )


def difference(one: Array, other: Array) -> float:
    return float(np.abs(one.astype(float) - other.astype(float)).mean())


@pytest.mark.parametrize("format", ["PNG", "WEBP"])
def test_stretched_pixels_are_those_of_a_resize(format: str, tmp_path: Path) -> None:
    data = file_of(WHOLE, format, lossless=True)
    found = bytes_of(tmp_path, data, size="120x90", resize="stretch", filter="bicubic")
    want = WHOLE.resize((120, 90), Image.Resampling.BICUBIC, reducing_gap=2.0)
    assert found.shape == (90, 120, 3)
    assert difference(found, np.asarray(want)) == 0


def test_a_crop_is_a_resize_of_the_shortest_side_and_its_centre(tmp_path: Path) -> None:
    found = bytes_of(tmp_path, file_of(WHOLE), size="112", shortest_side="128")
    want = WHOLE.resize((192, 128), Image.Resampling.BILINEAR).crop((40, 8, 152, 120))
    assert difference(found, np.asarray(want)) < 0.6


def test_a_letterbox_has_borders_of_the_fill(tmp_path: Path) -> None:
    found = bytes_of(tmp_path, file_of(WHOLE), size="120", resize="letterbox", fill="10,20,30")
    assert (found[:20] == (10, 20, 30)).all()
    assert (found[100:] == (10, 20, 30)).all()
    want = WHOLE.resize((120, 80), Image.Resampling.BILINEAR, reducing_gap=2.0)
    assert difference(found[20:100], np.asarray(want)) == 0


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("resize", ["crop", "letterbox"])
def test_a_picture_is_turned_upright(turn: int, resize: str, tmp_path: Path) -> None:
    stored = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    exif = Image.Exif()
    exif[0x0112] = turn
    sideways = WHOLE.transpose(stored[turn]) if turn > 1 else WHOLE
    found = bytes_of(tmp_path, file_of(sideways, "PNG", exif=exif), size="96x64", resize=resize)
    upright = bytes_of(tmp_path / "upright", file_of(WHOLE), size="96x64", resize=resize)
    assert difference(found, upright) < 0.5


def test_orientation_is_left_alone_where_the_config_says_so(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 3
    found = bytes_of(tmp_path, file_of(WHOLE, "PNG", exif=exif), size="60x40", orientation="ignore")
    assert found[0, 0, 0] < found[0, -1, 0]


def test_values_are_scaled_and_normalised_in_the_order_and_layout_asked_for(
    tmp_path: Path,
) -> None:
    data = file_of(WHOLE)
    plain = bytes_of(tmp_path, data, size="60x40") / 255.0
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    numbers = {"mean": "0.485,0.456,0.406", "std": "0.229,0.224,0.225", "size": "60x40"}
    found = pixels(tmp_path / "rgb", data, **numbers)
    assert (found.shape, found.dtype) == ((3, 40, 60), np.float32)
    np.testing.assert_allclose(found, ((plain - mean) / std).transpose(2, 0, 1), atol=1e-5)
    last = pixels(tmp_path / "bgr", data, color_order="BGR", layout="NHWC", scale="1", size="60x40")
    np.testing.assert_allclose(last, plain[:, :, ::-1] * 255, atol=1e-3)
    half = pixels(tmp_path / "half", data, OUTPUT % ("TYPE_FP16", "3, 40, 60"))
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, plain.transpose(2, 0, 1), atol=1e-3)
    grey = pixels(tmp_path / "grey", data, color_order="GRAY", size="60x40")
    want = WHOLE.convert("L").resize((60, 40), Image.Resampling.BILINEAR, reducing_gap=2.0)
    np.testing.assert_allclose(grey[0], np.asarray(want) / 255.0, atol=1e-5)


def test_scaled_decoding_changes_a_photograph_by_less_than_a_hundredth(tmp_path: Path) -> None:
    data = file_of(gradient(1600, 1200), "JPEG", quality=90)
    quick = bytes_of(tmp_path, data, size="96")
    whole = bytes_of(tmp_path / "whole", data, size="96", scaled_decoding="off")
    assert difference(quick, whole) < 2.5


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGBA", "1", "I;16"])
def test_every_kind_of_pixel_becomes_bytes(mode: str, tmp_path: Path) -> None:
    grey = WHOLE.convert("L")
    if mode == "I;16":
        wide = np.asarray(grey).astype(np.uint16) << 8
        picture = Image.fromarray(wide)
    else:
        picture = WHOLE.convert(mode)
    found = bytes_of(tmp_path, file_of(picture), size="60x40", color_order="GRAY")
    want = np.asarray(grey.resize((60, 40), Image.Resampling.BILINEAR, reducing_gap=2.0))
    assert difference(found[:, :, 0], want) < (40 if mode in "1P" else 2)


def test_a_cmyk_jpeg_is_read(tmp_path: Path) -> None:
    found = bytes_of(tmp_path, file_of(WHOLE.convert("CMYK"), "JPEG"), size="60x40")
    assert found.shape == (40, 60, 3)


def test_every_row_is_a_picture_and_a_bad_one_is_named(tmp_path: Path) -> None:
    instance = step(tmp_path, "image", size="32")
    good = file_of(WHOLE)
    found = answered(instance, IMAGE=column(good, good))
    assert found["PIXELS"].shape == (2, 3, 32, 32)
    assert found["GEOMETRY"].shape == (2, 6)
    error = ask(instance, IMAGE=column(good, b"GIF89a"))
    assert isinstance(error, ModelError)
    assert error.code == "INVALID_ARG"
    assert str(error) == (
        "model 'm' version 1: the picture of row 1 in IMAGE is not a JPEG, PNG or WebP file: it "
        "begins with 47 49 46 38 39 61"
    )


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (png_head(60_000, 60_000), "is a PNG file of 60000 × 60000 pixels, and 64000000 pixels"),
        (file_of(WHOLE, "JPEG")[:-400], "is cut short: the JPEG file has no end"),
        (b"", "is empty"),
        (b"\xff\xd8" + bytes(100), "is a damaged JPEG file"),
        (png_head(10, 10), "cannot be decoded: "),
    ],
    ids=["bomb", "short", "empty", "damaged", "hollow"],
)
def test_a_bad_file_is_refused_with_its_reason(data: bytes, text: str, tmp_path: Path) -> None:
    error = ask(step(tmp_path, "image", size="32"), IMAGE=column(data))
    assert isinstance(error, ModelError)
    assert text in str(error)


def test_files_and_pictures_have_bounds(tmp_path: Path) -> None:
    data = file_of(WHOLE)
    large = ask(step(tmp_path, "image", size="32", max_bytes="100"), IMAGE=column(data))
    assert f"has {len(data)} bytes, more than the 100 allowed" in str(large)
    wide = ask(step(tmp_path / "w", "image", size="32", max_pixels="239999"), IMAGE=column(data))
    assert "600 × 400 pixels, and 239999 pixels are allowed" in str(wide)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
def test_a_damaged_file_never_raises_anything_else(format: str, tmp_path: Path) -> None:
    instance = step(tmp_path, "image", size="16")
    whole = bytearray(file_of(gradient(40, 30), format))
    random = np.random.default_rng(18)
    for _ in range(300):
        data = bytearray(whole)
        for place in random.integers(12, len(data), 4):
            data[place] = random.integers(256)
        result = ask(instance, IMAGE=column(bytes(data)))
        assert not isinstance(result, Exception) or isinstance(result, ModelError)


@pytest.mark.parametrize(
    ("parameters", "tensors", "text"),
    [
        ({}, "", "needs the parameter size, such as 224 or 640x480"),
        ({"size": "224"}, OUTPUT % ("TYPE_INT8", "3"), "TYPE_INT8; it must be one of TYPE_FP32"),
        ({"size": "224", "shortest_side": "200"}, "", "it must be at least 224"),
        ({"shortest_side": "8"}, OUTPUT % ("TYPE_FP32", "3,9,9"), "it must be at least 9"),
        ({"size": "9", "shortest_side": "9", "resize": "stretch"}, "", "goes with resize crop"),
        ({"size": "9", "mean": "1"}, OUTPUT % ("TYPE_UINT8", "3,9,9"), "leave scale, mean and std"),
        ({"size": "9", "mean": "1,1,1", "color_order": "GRAY"}, "", "GRAY has one channel"),
        ({"size": "big"}, "", "parameter size is 'big'; it must be 224, or width x height"),
        ({"size": "9"}, OUTPUT % ("TYPE_FP32", "3, 8, 8"), "[3,9,9] behind the batch"),
        ({"size": "9"}, 'output { name: "X" data_type: TYPE_FP32 dims: 1 }', "its outputs are"),
    ],
)
def test_a_config_that_cannot_be_followed_is_refused(
    parameters: dict[str, str], tensors: str, text: str, tmp_path: Path
) -> None:
    version = make_version(tmp_path, step_config("image", parameters, tensors))
    with pytest.raises(LoadFailed) as caught:
        backend_of("image").complete(version, 4)
    assert text in str(caught.value)
    assert "model 'm' version 1" in str(caught.value)


def test_a_whole_size_may_come_from_the_output(tmp_path: Path) -> None:
    version = make_version(tmp_path, OUTPUT % ("TYPE_FP32", "20, 30, 3"))
    config = backend_of("image").complete(version, 4)
    assert list(config.output[0].dims) == [20, 30, 3]
    assert not config.HasField("dynamic_batching")


@pytest.mark.parametrize("mode", ["I;16", "RGBA", "LA", "L", "RGB"])
def test_a_picture_takes_5_bytes_a_pixel_at_most(mode: str) -> None:
    side = 3000
    if mode == "I;16":
        whole = Image.fromarray(np.zeros((side, side), np.uint16))
    else:
        whole = Image.new(mode, (side, side))
    data = file_of(whole)
    code = (
        "import sys, resource as r\n"
        "import numpy as np\n"
        "from backends.steps.pictures import decode, settings\n"
        "data = sys.stdin.buffer.read()\n"
        "ask = settings.PictureSettings((32, 32), 'crop', None, (0, 0, 0), 'bilinear', 'RGB',"
        " (1, 1, 1), (0, 0, 0), 'NCHW', np.dtype('uint8'), 'exif', True, 1 << 30, 1 << 30)\n"
        "row = np.empty(ask.shape(), np.uint8)\n"
        "peak = lambda: r.getrusage(r.RUSAGE_SELF).ru_maxrss\n"
        "before = peak()\n"
        "decode.decode_into(row, data, ask)\n"
        "print((peak() - before) * 1024)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], input=data, capture_output=True, check=True, timeout=60
    )
    assert int(found.stdout) < side * side * 5.5


def test_a_pixel_of_a_webp_counts_four_times(tmp_path: Path) -> None:
    instance = step(tmp_path, "image", size="8", max_pixels="1000")
    error = ask(instance, IMAGE=column(file_of(gradient(20, 20), "WEBP")))
    assert "of 20 × 20 pixels, each of which counts 4 times" in str(error)
    assert not isinstance(ask(instance, IMAGE=column(file_of(gradient(20, 20)))), Exception)
