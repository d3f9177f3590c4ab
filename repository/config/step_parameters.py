"""Every parameter of the built-in steps `image`, `text`, `classify` and `detect`: what may be
written, what holds where nothing is, and how the text is read.

The checker refuses by this table, the backends read their settings through it, and docs/config.md
is written from it. Pure.
"""

import math
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

STEPS = ("image", "text", "classify", "detect")
"""The backends that are steps of ensembles and run no file."""

MOST_SIDE = 16384
"""Pixels of a side, of what `image` makes."""

_SIZE = re.compile(r"([0-9]{1,5})(?:x([0-9]{1,5}))?")
_FRACTION = re.compile(r"([0-9.eE+-]+)/([0-9.eE+-]+)")

Reader = Callable[[str], Any]
"""The value of a text; raises ValueError for one that may not be written."""


class StepParameter(NamedTuple):
    """One key of one step. `default`: as it would be written, "" where its absence is a value of
    its own; `shown`: the default as the docs say it, where that is not `default` itself."""

    backend: str
    key: str
    read: Reader
    allowed: str
    default: str
    text: str
    shown: str = ""


def _choice(*names: str) -> Reader:
    def read(text: str) -> str:
        if text not in names:
            near = get_close_matches(text, names, n=1, cutoff=0.6)
            raise ValueError(f"did you mean {near[0]}?" if near else "")
        return text

    return read


def _whole(low: int, high: int) -> Reader:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not low <= int(text[:19]) <= high:
            raise ValueError
        return int(text)

    return read


def _number(low: float, high: float) -> Reader:
    def read(text: str) -> float:
        return _checked(text, low, high)

    return read


def _numbers(low: float, high: float) -> Reader:
    """One number, or three separated by commas."""

    def read(text: str) -> tuple[float, ...]:
        values = tuple(_checked(one, low, high) for one in text.split(","))
        if len(values) not in (1, 3):
            raise ValueError
        return values

    return read


def _checked(text: str, low: float, high: float) -> float:
    if found := _FRACTION.fullmatch(text.strip()):
        above, below = float(found[1]), float(found[2])
        value = above / below if below else math.nan
    else:
        value = float(text)
    if not low <= value <= high:
        raise ValueError
    return value


def _size(text: str) -> tuple[int, int]:
    """Width and height: "224" or "640x480"."""
    found = _SIZE.fullmatch(text)
    width = int(found[1]) if found else 0
    height = int(found[2] or width) if found else 0
    if not (0 < width <= MOST_SIDE and 0 < height <= MOST_SIDE):
        raise ValueError
    return width, height


def _switch(text: str) -> bool:
    return bool(_choice("true", "false")(text) == "true")


def _text(text: str) -> str:
    if not 0 < len(text) <= 255 or not text.isprintable():
        raise ValueError
    return text


_TRUTH = "`true` or `false`"
_FILE = "a file in the version's folder"
_COUNT = 1 << 30


def _image(key: str, read: Reader, allowed: str, default: str, *texts: str) -> StepParameter:
    return StepParameter("image", key, read, allowed, default, *texts)


def _tokens(key: str, read: Reader, allowed: str, default: str, *texts: str) -> StepParameter:
    return StepParameter("text", key, read, allowed, default, *texts)


def _classes(key: str, read: Reader, allowed: str, default: str, *texts: str) -> StepParameter:
    return StepParameter("classify", key, read, allowed, default, *texts)


def _boxes(key: str, read: Reader, allowed: str, default: str, *texts: str) -> StepParameter:
    return StepParameter("detect", key, read, allowed, default, *texts)


_LABELS = "Names of the classes, one a line."
_LABELS_DEFAULT = "labels.txt where there is one"

STEP_PARAMETERS: tuple[StepParameter, ...] = (
    _image(
        "size",
        _size,
        f"`224`, or width x height such as `640x480`; each to {MOST_SIDE}",
        "",
        "Size of the picture that the model gets.",
        "the dims of PIXELS",
    ),
    _image(
        "resize",
        _choice("crop", "stretch", "letterbox"),
        "`crop`, `stretch`, `letterbox`",
        "crop",
        "`crop`: shortest side, then the centre; `stretch`: both sides; `letterbox`: the whole "
        "picture, with borders.",
    ),
    _image(
        "shortest_side",
        _whole(1, MOST_SIDE),
        f"1 to {MOST_SIDE}",
        "",
        "Of `crop`: length of the shortest side before the centre is cut out.",
        "that which cuts off least",
    ),
    _image(
        "fill",
        _numbers(0, 255),
        "0 to 255, one or three",
        "114",
        "Colour of a letterbox's borders.",
    ),
    _image(
        "filter",
        _choice("bilinear", "bicubic", "lanczos", "box", "nearest"),
        "`bilinear`, `bicubic`, `lanczos`, `box`, `nearest`",
        "bilinear",
        "How pixels are combined, as Pillow does it; take what the model was trained with.",
    ),
    _image(
        "color_order",
        _choice("RGB", "BGR", "GRAY"),
        "`RGB`, `BGR`, `GRAY`",
        "RGB",
        "Order of the channels; `GRAY` has one.",
    ),
    _image(
        "scale",
        _number(-1e6, 1e6),
        "a number or a fraction",
        "",
        "Factor of each value, before `mean` and `std`.",
        "1/255; 1 of UINT8",
    ),
    _image("mean", _numbers(-1e6, 1e6), "one number or three", "0", "Subtracted, by channel."),
    _image(
        "std", _numbers(1e-9, 1e6), "one number or three, above 0", "1", "Divided by, by channel."
    ),
    _image(
        "layout",
        _choice("NCHW", "NHWC"),
        "`NCHW`, `NHWC`",
        "",
        "Order of the dimensions.",
        "by the dims of PIXELS, else NCHW",
    ),
    _image(
        "orientation",
        _choice("exif", "ignore"),
        "`exif`, `ignore`",
        "exif",
        "Turn pictures upright as their EXIF data says.",
    ),
    _image(
        "scaled_decoding",
        _choice("auto", "off"),
        "`auto`, `off`",
        "auto",
        "Decode a JPEG at a half, a quarter or an eighth where twice the size asked for is left.",
    ),
    _image(
        "max_pixels",
        _whole(1, _COUNT),
        f"1 to {_COUNT}",
        "64000000",
        "Most pixels of a picture; a larger one is refused before it is decoded. Those of a "
        "progressive JPEG count twice, those of a WebP four times.",
    ),
    _image("max_bytes", _whole(1, _COUNT), f"1 to {_COUNT}", "33554432", "Most bytes of a file."),
    _tokens(
        "tokenizer", _text, _FILE, "tokenizer.json", "The tokenizer, as Hugging Face saves it."
    ),
    _tokens("max_length", _whole(1, 1 << 20), f"1 to {1 << 20}", "512", "Most tokens of a row."),
    _tokens(
        "padding",
        _choice("longest", "max_length"),
        "`longest`, `max_length`",
        "longest",
        "How long the rows of a request are made.",
    ),
    _tokens("padding_side", _choice("right", "left"), "`right`, `left`", "right", "Where."),
    _tokens(
        "pad_token",
        _text,
        "a token",
        "",
        "With what.",
        "that of the file, else `[PAD]`, `<pad>`, `</s>`",
    ),
    _tokens(
        "truncation",
        _switch,
        _TRUTH,
        "true",
        "Cut rows that are too long; otherwise they are refused.",
    ),
    _tokens("special_tokens", _switch, _TRUTH, "true", "Add what the model wants around a text."),
    _tokens("max_bytes", _whole(1, 1 << 26), f"1 to {1 << 26}", "1048576", "Most bytes of a text."),
    _classes(
        "activation",
        _choice("softmax", "sigmoid", "none"),
        "`softmax`, `sigmoid`, `none`",
        "softmax",
        "What makes scores of the model's numbers.",
    ),
    _classes("top_k", _whole(1, 100_000), "1 to 100000", "5", "How many classes a row gets."),
    _classes(
        "threshold", _number(-1e30, 1e30), "a number", "", "Least score of a class.", "no threshold"
    ),
    _classes("labels", _text, _FILE, "", _LABELS, _LABELS_DEFAULT),
    _boxes(
        "format",
        _choice("xyxy", "cxcywh", "yolov5", "yolov8"),
        "`xyxy`, `cxcywh`, `yolov5`, `yolov8`",
        "xyxy",
        "How the model says boxes: corners or centre and size beside SCORES, or all in one tensor.",
    ),
    _boxes(
        "coordinates",
        _choice("pixels", "relative"),
        "`pixels`, `relative`",
        "pixels",
        "`relative`: 0 to 1 of the picture that the model got, whose `size` is needed then.",
    ),
    _boxes("size", _size, "as of `image`", "", "Size of the picture that the model got.", "none"),
    _boxes(
        "activation",
        _choice("none", "sigmoid", "softmax"),
        "`none`, `sigmoid`, `softmax`",
        "none",
        "What makes scores of the model's numbers.",
    ),
    _boxes("score_threshold", _number(0, 1), "0 to 1", "0.25", "Least score of a box."),
    _boxes(
        "iou_threshold",
        _number(0, 1),
        "0 to 1",
        "0.45",
        "A box that overlaps a better one by more is left out.",
    ),
    _boxes("class_agnostic", _switch, _TRUTH, "false", "Also where it is one of another class."),
    _boxes("max_detections", _whole(1, 10_000), "1 to 10000", "100", "Most boxes of a picture."),
    _boxes(
        "max_candidates",
        _whole(1, 100_000),
        "1 to 100000",
        "3000",
        "The best so many boxes are compared with each other.",
    ),
    _boxes("labels", _text, _FILE, "", _LABELS, _LABELS_DEFAULT),
)
"""In the order of the docs."""

_BY_BACKEND = {
    step: {row.key: row for row in STEP_PARAMETERS if row.backend == step} for step in STEPS
}


def read_settings(backend: str, written: Mapping[str, str]) -> dict[str, Any]:
    """Every key of a step, with what is written or its default; None for one without either.

    Raises ValueError, which names key, value and what may be written.
    """
    return {
        key: read_value(row, written.get(key, row.default))
        if written.get(key, row.default)
        else None
        for key, row in _BY_BACKEND[backend].items()
    }


def read_value(row: StepParameter, text: str) -> Any:
    """Raises ValueError as `read_settings`."""
    try:
        return row.read(text)
    except (ValueError, OverflowError) as error:
        hint = str(error) if str(error).startswith("did you mean") else ""
        raise ValueError(
            f"parameter {row.key} is '{text:.80}'; it must be {row.allowed.replace('`', '')}"
            + (f"; {hint}" if hint else "")
        ) from None


def keys_of(backend: str) -> Mapping[str, StepParameter]:
    """The keys of a step."""
    return _BY_BACKEND[backend]
