"""MLServer's two models, written as its documentation would have them.

Imported by MLServer, in its own environment, from a copy of this file.
"""

import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Identity(MLModel):
    """INPUT0 comes back as OUTPUT0, decoded and encoded on the way."""

    async def load(self) -> bool:
        """Nothing to load."""
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Decode, encode."""
        array = NumpyCodec.decode_input(payload.inputs[0])
        output = NumpyCodec.encode_output("OUTPUT0", array)
        return InferenceResponse(
            id=payload.id, model_name=self.name, model_version=self.version, outputs=[output]
        )


class Cnn(MLModel):
    """IMAGE through an ONNX graph to LOGITS."""

    async def load(self) -> bool:
        """Open the graph with onnxruntime's defaults."""
        self._session = onnxruntime.InferenceSession(self.settings.parameters.uri)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Decode, run, encode."""
        image = NumpyCodec.decode_input(payload.inputs[0])
        (logits,) = self._session.run(["LOGITS"], {"IMAGE": image.astype("float32", copy=False)})
        output = NumpyCodec.encode_output("LOGITS", logits)
        return InferenceResponse(
            id=payload.id, model_name=self.name, model_version=self.version, outputs=[output]
        )
