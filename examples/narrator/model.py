"""Reads a digit, announces it, and tells a story that begins with it: calls of other models."""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils

WORDS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
TOKENS = 24


class TritonPythonModel:
    """IMAGE FP32 [1, 8, 8] → DIGIT INT32 [1]; LINE string [1], in capitals; STORY string [1], empty
    where the language model `stories` is not served."""

    async def execute(self, requests):
        """All requests at once; each waits for its own calls."""
        return await asyncio.gather(*map(self.answer, requests))

    async def answer(self, request):
        """Ask `digits`, and then `shout` and `stories` at the same time."""
        image = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy()
        read = await self.call(request, "digits", {"IMAGE": image[np.newaxis]}, ["LOGITS"])
        if read.has_error():
            return pb_utils.InferenceResponse(error=read.error())
        digit = int(read.output_tensors()[0].as_numpy().argmax())
        line = self.call(request, "shout", {"TEXT": text(f"It is {WORDS[digit]}", 2)}, ["SHOUTED"])
        shouted, story = await asyncio.gather(line, self.tell(request, WORDS[digit]))
        if shouted.has_error():
            return pb_utils.InferenceResponse(error=shouted.error())
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("DIGIT", np.array([digit], np.int32)),
                pb_utils.Tensor("LINE", shouted.output_tensors()[0].as_numpy().reshape(1)),
                pb_utils.Tensor("STORY", text(story)),
            ]
        )

    async def tell(self, request, word):
        """The story piece by piece, as far as it comes; nothing where nobody tells one."""
        inputs = {"text_input": text(f"Once upon a time {word}"), "stream": np.array([True])}
        terms = {"max_tokens": TOKENS}
        pieces = []
        stream = await self.ask(request, "stories", inputs, ["text_output"], terms).async_exec(
            decoupled=True
        )
        async for response in stream:
            if response.has_error():
                break
            pieces += [tensor.as_numpy().ravel()[0] for tensor in response.output_tensors()]
        return b"".join(pieces).decode()

    async def call(self, request, model, inputs, outputs):
        """The one response of another model."""
        return await self.ask(request, model, inputs, outputs).async_exec()

    @staticmethod
    def ask(request, model, inputs, outputs, parameters=None):
        """A request to another model, for `request`."""
        return pb_utils.InferenceRequest(
            model_name=model,
            requested_output_names=outputs,
            inputs=[pb_utils.Tensor(name, array) for name, array in inputs.items()],
            parameters=parameters,
            trace=request.trace(),
        )


def text(words, dims=1):
    """A string tensor of one element."""
    return np.array([words.encode()], np.object_).reshape((1,) * dims)
