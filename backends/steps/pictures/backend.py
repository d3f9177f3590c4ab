"""The step `image`: files of pictures in, the numbers that a vision model takes out.

IMAGE BYTES [1], a JPEG, PNG or WebP file → PIXELS [channels, height, width] or with the channels
last, FP32, FP16 or UINT8; and GEOMETRY FP32 [6], which leads back to the picture's own pixels (see
`backends.steps.pictures.geometry.PicturePlacement.mapping`).
"""

import numpy as np
from tritonclient.grpc import model_config_pb2 as pb

from backends.artefact import Artefact, TensorDescription, require_cpu
from backends.seam import Device, LoadedInstances, Tensors
from backends.steps.pictures.decode import decode_into
from backends.steps.pictures.header import BadPicture
from backends.steps.pictures.settings import PIXELS, PictureSettings, picture_settings
from backends.steps.step import StepInstance, complete_step
from repository.config.tensors import BY_DTYPE
from repository.model import ModelConfig, ModelVersion

IMAGE, GEOMETRY = "IMAGE", "GEOMETRY"


class Pictures:
    """The backend `image`."""

    def complete(self, version: ModelVersion, default_max_batch: int) -> ModelConfig:
        """See `backends.seam.Backend`. Without `dynamic_batching` in the config each request is
        decoded on a core of its own, rather than several behind one another."""
        settings = picture_settings(version)
        data_type = BY_DTYPE[settings.dtype].config
        artefact = Artefact(
            "the backend 'image'",
            (TensorDescription(IMAGE, pb.TYPE_STRING, (-1, 1)),),
            (
                TensorDescription(PIXELS, data_type, (-1, *settings.shape())),
                TensorDescription(GEOMETRY, pb.TYPE_FP32, (-1, 6)),
            ),
        )
        config = complete_step(version, "image", artefact, default_max_batch)
        if not version.config.HasField("dynamic_batching"):
            config.ClearField("dynamic_batching")
        return config

    def load(self, version: ModelVersion, device: Device, count: int) -> LoadedInstances:
        """`count` instances, each for one thread. Raises LoadFailed."""
        require_cpu(version, device, "Pillow")
        settings = picture_settings(version)
        instances = [PictureInstance(version, device, settings) for _ in range(count)]
        return LoadedInstances(instances, version.config)


class PictureInstance(StepInstance):
    """Decodes pictures one after the other."""

    def __init__(self, version: ModelVersion, device: Device, settings: PictureSettings) -> None:
        super().__init__(version, device.threads)
        self._settings = settings

    def run(self, inputs: Tensors, wanted: tuple[str, ...]) -> Tensors:
        files = inputs[IMAGE].reshape(-1)
        pixels = np.empty((len(files), *self._settings.shape()), self._settings.dtype)
        mappings = np.empty((len(files), 6), np.float32)
        for number, found in enumerate(files):
            data = found.encode(errors="replace") if isinstance(found, str) else found
            try:
                mappings[number] = decode_into(pixels[number], data, self._settings).mapping()
            except BadPicture as error:
                place = f" of row {number}" if len(files) > 1 else ""
                raise self.refused(f"the picture{place} in {IMAGE} {error}") from None
        return {PIXELS: pixels, GEOMETRY: mappings}
