"""What the step `image` makes of a picture, from its config."""

from typing import Any, NamedTuple

import numpy as np
from tritonclient.grpc import model_config_pb2 as pb

from backends.artefact import refuse
from backends.steps.step import settings_of
from repository.config.tensors import BY_CONFIG
from repository.model import ModelVersion

PIXELS = "PIXELS"
TYPES = (pb.TYPE_FP32, pb.TYPE_FP16, pb.TYPE_UINT8)
_FACTOR = 1 / 255


class PictureSettings(NamedTuple):
    """`factor`, `shift`: of each channel; value = byte × factor + shift. `fill`: by channel, in
    bytes. Other fields as the parameters of their names."""

    size: tuple[int, int]
    resize: str
    shortest_side: int | None
    fill: tuple[int, ...]
    filter: str
    color_order: str
    factor: tuple[float, ...]
    shift: tuple[float, ...]
    layout: str
    dtype: np.dtype[Any]
    orientation: str
    scaled_decoding: bool
    max_pixels: int
    max_bytes: int

    @property
    def channels(self) -> int:
        return 1 if self.color_order == "GRAY" else 3

    def shape(self) -> tuple[int, int, int]:
        """Of one picture's numbers."""
        width, height = self.size
        if self.layout == "NCHW":
            return self.channels, height, width
        return height, width, self.channels


def picture_settings(version: ModelVersion) -> PictureSettings:
    """Raises LoadFailed."""
    found = settings_of(version, "image")
    channels = 1 if found["color_order"] == "GRAY" else 3
    written = next((tensor for tensor in version.config.output if tensor.name == PIXELS), None)
    dims = tuple(written.dims)[-3:] if written is not None else ()
    data_type = (written.data_type if written is not None else 0) or pb.TYPE_FP32
    if data_type not in TYPES:
        names = ", ".join(pb.DataType.Name(one) for one in TYPES)
        refuse(
            version,
            f"output '{PIXELS}' is {pb.DataType.Name(data_type)}; it must be one of {names}",
        )
    layout = found["layout"] or _layout(dims, channels)
    factor, shift = _arithmetic(version, found, channels, data_type == pb.TYPE_UINT8)
    size = found["size"] or _size(version, dims, layout)
    return PictureSettings(
        size=size,
        resize=found["resize"],
        shortest_side=_shortest_side(version, found, size),
        fill=_by_channel(tuple(map(int, found["fill"])), channels),
        filter=found["filter"],
        color_order=found["color_order"],
        factor=factor,
        shift=shift,
        layout=layout,
        dtype=BY_CONFIG[data_type].dtype,
        orientation=found["orientation"],
        scaled_decoding=found["scaled_decoding"] == "auto",
        max_pixels=found["max_pixels"],
        max_bytes=found["max_bytes"],
    )


def _layout(dims: tuple[int, ...], channels: int) -> str:
    last = len(dims) == 3 and dims[2] == channels and dims[0] != channels
    return "NHWC" if last else "NCHW"


def _size(version: ModelVersion, dims: tuple[int, ...], layout: str) -> tuple[int, int]:
    if len(dims) < 3 or min(dims) < 1:
        refuse(
            version,
            "the backend 'image' needs the parameter size, such as 224 or 640x480, or the dims of "
            f"the output '{PIXELS}'",
        )
    height, width = dims[1:] if layout == "NCHW" else dims[:2]
    return width, height


def _shortest_side(
    version: ModelVersion, found: dict[str, Any], size: tuple[int, int]
) -> int | None:
    side: int | None = found["shortest_side"]
    if side is None:
        return None
    if found["resize"] != "crop":
        refuse(version, f"parameter shortest_side goes with resize crop, not {found['resize']}")
    if side < max(size):
        width, height = size
        refuse(
            version,
            f"parameter shortest_side is {side}, but {width} × {height} pixels are to be cut out; "
            f"it must be at least {max(width, height)}",
        )
    return side


def _arithmetic(
    version: ModelVersion, found: dict[str, Any], channels: int, whole: bool
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    mean, std = found["mean"], found["std"]
    if whole and (found["scale"] not in (None, 1.0) or set(mean) != {0.0} or set(std) != {1.0}):
        refuse(
            version,
            f"output '{PIXELS}' is TYPE_UINT8, which has the bytes as they are; leave scale, mean "
            "and std out, or make it TYPE_FP32",
        )
    scale = found["scale"] if found["scale"] is not None else 1.0 if whole else _FACTOR
    for name, values in (("mean", mean), ("std", std), ("fill", found["fill"])):
        if len(values) > channels:
            refuse(version, f"parameter {name} has {len(values)} numbers; GRAY has one channel")
    means, stds = _by_channel(mean, channels), _by_channel(std, channels)
    factor = tuple(scale / one for one in stds)
    return factor, tuple(-mean / std for mean, std in zip(means, stds, strict=True))


def _by_channel(values: tuple[Any, ...], channels: int) -> tuple[Any, ...]:
    return values * channels if len(values) == 1 else values
