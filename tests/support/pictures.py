"""Small pictures in files, and steps that take them."""

import struct
import zlib
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from backends.registry import backend_of
from backends.seam import Instance, Result, Tensors
from repository.config.tensors import Array
from support.runtime import CPU, batch_of, make_version, member, with_config


def gradient(width: int, height: int) -> Image.Image:
    """Red grows to the right, green downwards; blue is a coarse board."""
    across, down = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    board = ((across // 64 + down // 64) % 2) * 200
    return Image.fromarray(np.stack([across, down, board], axis=-1).astype(np.uint8))


def file_of(picture: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    buffer = BytesIO()
    picture.save(buffer, format, **options)
    return buffer.getvalue()


def step_config(backend: str, parameters: Mapping[str, str], tensors: str = "") -> str:
    rows = [
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'
        for key, value in parameters.items()
    ]
    return "\n".join([f'backend: "{backend}"', *rows, tensors])


def step(
    folder: Path,
    backend: str,
    tensors: str = "",
    files: Mapping[str, bytes] | None = None,
    **parameters: str,
) -> Instance:
    """A step's instance, completed and loaded as the server does it."""
    version = make_version(folder, step_config(backend, parameters, tensors))
    for name, content in (files or {}).items():
        (version.path / name).write_bytes(content)
    made = backend_of(backend)
    completed = with_config(version, made.complete(version, 4))
    (instance,) = made.load(completed, CPU, 1).instances
    return instance


def ask(instance: Instance, *wanted: str, **inputs: Array) -> Result:
    (result,) = instance.execute(batch_of(member(wanted, **inputs))).results
    return result


def answered(instance: Instance, *wanted: str, **inputs: Array) -> Tensors:
    result = ask(instance, *wanted, **inputs)
    assert isinstance(result, Mapping), result
    return result


def column(*elements: bytes) -> Array:
    """A BYTES tensor of shape [n, 1]: one element a row."""
    array = np.empty((len(elements), 1), np.object_)
    array[:, 0] = elements
    return array


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_head(width: int, height: int) -> bytes:
    """A PNG that promises so many pixels and has none."""
    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", size)
        + png_chunk(b"IDAT", zlib.compress(b""))
        + png_chunk(b"IEND", b"")
    )
