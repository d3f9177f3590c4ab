"""What is sent to a model, from what a person writes: JSON, a file, text or an image."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from server.cli.commands.command import CommandFailed

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
_SIDE = 224
"""Of a side of an image whose model leaves it open."""

Tensor = Mapping[str, Any]
"""An input as the model's metadata has it: name, datatype, shape with -1 for any size."""


def body_of(data: str, inputs: Sequence[Tensor]) -> dict[str, Any]:
    """The request's body. Raises CommandFailed naming what is wrong and what would do."""
    path = Path(data.removeprefix("@"))
    is_file = data.startswith("@") or (path.suffix.lower() in IMAGES and path.is_file())
    if is_file and path.suffix.lower() in IMAGES:
        return {"inputs": [image_tensor(path, inputs)]}
    text = _read(path) if is_file else data
    try:
        document = json.loads(text)
    except ValueError as error:
        if len(inputs) == 1 and inputs[0]["datatype"] == "BYTES":
            return {"inputs": [_tensor(inputs[0], text)]}
        raise CommandFailed(f"{_shown(data)} is no JSON: {error}; {_inputs_text(inputs)}") from None
    if isinstance(document, dict) and "inputs" in document:
        return document
    return {"inputs": _from_values(document, inputs)}


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        raise CommandFailed(
            f"{path} is neither JSON nor an image ({', '.join(IMAGES)}); give JSON"
        ) from None
    except OSError as error:
        raise CommandFailed(f"{path} cannot be read: {error.strerror}") from None


def _from_values(document: Any, inputs: Sequence[Tensor]) -> list[dict[str, Any]]:
    """`{"x": [1, 2]}`, or the values alone where the model has one input."""
    by_name = {one["name"]: one for one in inputs}
    if isinstance(document, dict):
        for name in document:
            if name not in by_name:
                raise CommandFailed(
                    f"the model has no input '{name}'; its inputs are {', '.join(by_name)}"
                )
        return [_tensor(by_name[name], value) for name, value in document.items()]
    if len(inputs) != 1:
        raise CommandFailed(f"the model has {len(inputs)} inputs; {_inputs_text(inputs)}")
    return [_tensor(inputs[0], document)]


def _tensor(described: Tensor, value: Any) -> dict[str, Any]:
    """The shape is that of nested lists; a flat list takes the model's own where it is as long."""
    shape, flat = _shape(value), _flat(value)
    if len(shape) < len(described["shape"]):
        shape = _filled(described["shape"], len(flat)) or shape
    return {
        "name": described["name"],
        "datatype": described["datatype"],
        "shape": shape or [1],
        "data": flat,
    }


def _shape(value: Any) -> list[int]:
    if not isinstance(value, list):
        return []
    return [len(value), *(_shape(value[0]) if value else [])]


def _flat(value: Any) -> list[Any]:
    if not isinstance(value, list):
        return [value]
    return [one for part in value for one in _flat(part)]


def _filled(shape: Sequence[int], count: int) -> list[int]:
    """The model's shape with so many elements: the last open size takes them, the others are 1."""
    sizes, left = [max(size, 1) for size in shape], count
    for size in sizes:
        if left % size:
            return []
        left //= size
    for place in range(len(shape) - 1, -1, -1):
        if shape[place] < 0:
            sizes[place] = left
            return sizes
    return sizes if left == 1 else []


def image_tensor(path: Path, inputs: Sequence[Tensor]) -> dict[str, Any]:
    """The image as the one input that looks like one: resized, 0 to 255 for integers and 0 to 1
    for floats."""
    described, channels_first = _image_input(inputs)
    try:
        from PIL import Image, UnidentifiedImageError
    except ModuleNotFoundError:
        raise CommandFailed("images need the package pillow: pip install pillow") from None
    import numpy as np

    shape = described["shape"][-3:]
    channels, height, width = shape if channels_first else (shape[2], shape[0], shape[1])
    sides = [size if size > 0 else _SIDE for size in (width, height)]
    try:
        with Image.open(path) as opened:
            image = opened.convert("L" if channels == 1 else "RGB").resize((sides[0], sides[1]))
    except (OSError, UnidentifiedImageError) as error:
        raise CommandFailed(f"{path} cannot be read as an image: {error}") from None
    pixels = np.asarray(image).reshape(sides[1], sides[0], -1)
    if channels_first:
        pixels = pixels.transpose(2, 0, 1)
    floats = described["datatype"].startswith(("FP", "BF"))
    values = (pixels / 255.0).round(6) if floats else pixels
    whole = [1] * (len(described["shape"]) - 3) + list(pixels.shape)
    data = values.ravel().tolist()
    return {**_header_of(described), "shape": whole, "data": data}


def _header_of(described: Tensor) -> dict[str, Any]:
    return {"name": described["name"], "datatype": described["datatype"]}


def _image_input(inputs: Sequence[Tensor]) -> tuple[Tensor, bool]:
    """The input, and whether its channels come before height and width."""
    found = []
    for one in inputs:
        shape = one["shape"]
        numeric = one["datatype"] not in ("BYTES", "BOOL")
        if numeric and len(shape) in (3, 4) and (shape[-3] in (1, 3) or shape[-1] in (1, 3)):
            found.append((one, shape[-3] in (1, 3)))
    if len(found) != 1 or len(inputs) != 1:
        raise CommandFailed(
            "an image is taken by models with one input of shape [3,H,W] or [H,W,3] (1 channel for "
            f"grey); {_inputs_text(inputs)}"
        )
    return found[0]


def _inputs_text(inputs: Sequence[Tensor]) -> str:
    described = ", ".join(f"{one['name']} {one['datatype']} {one['shape']}" for one in inputs)
    return f'give {{"NAME": VALUES}} with {described or "no inputs"}'


def _shown(data: str) -> str:
    return f"'{data}'" if len(data) <= 40 else f"'{data[:39]}…'"
