"""Gives the elements of a list back one by one: a decoupled python model, as Triton's `repeat`."""

import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """IN INT32 [n], DELAY UINT32 [n] (ms before each element), WAIT UINT32 [1] (ms `execute` takes)
    → n responses with OUT INT32 [1], the element, and IDX UINT32 [1], its place."""

    def initialize(self, args):
        """Keep the threads, so that the model ends no sooner than they do."""
        self.threads = []

    def execute(self, requests):
        """Take the requests in and return; a thread each keeps answering."""
        self.threads = [thread for thread in self.threads if thread.is_alive()]
        for request in requests:
            thread = threading.Thread(target=self.answer, args=(request,))
            thread.start()
            self.threads.append(thread)
            time.sleep(int(self.tensor(request, "WAIT")[0]) / 1000)

    def answer(self, request):
        """Send one element after the other, as long as somebody reads them, then the end."""
        sender = request.get_response_sender()
        elements, delays = self.tensor(request, "IN"), self.tensor(request, "DELAY")
        if len(elements) != len(delays):
            text = f"IN has {len(elements)} elements and DELAY {len(delays)}: give as many delays"
            error = pb_utils.TritonError(text, pb_utils.TritonError.INVALID_ARG)
            sender.send(pb_utils.InferenceResponse(error=error))
            elements = ()
        for place, element in enumerate(elements):
            time.sleep(int(delays[place]) / 1000)
            if sender.is_cancelled():
                break
            out = pb_utils.Tensor("OUT", np.array([element], np.int32))
            index = pb_utils.Tensor("IDX", np.array([place], np.uint32))
            sender.send(pb_utils.InferenceResponse([out, index]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def finalize(self):
        """Wait for what is still being answered."""
        for thread in self.threads:
            thread.join()

    @staticmethod
    def tensor(request, name):
        """An input as a numpy array."""
        return pb_utils.get_input_tensor_by_name(request, name).as_numpy()
