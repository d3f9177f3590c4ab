"""Python models that call others or are called, as texts for `support.scripts.write_python`."""

# Triton's example square_int32, here of floats: N times N.
SQUARE = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.work, args=(request,)).start()

    def work(self, request):
        sender = request.get_response_sender()
        value = request.inputs()[0].as_numpy()
        for _ in range(int(value[0, 0])):
            sender.send(answer(value))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

ENDLESS = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.work, args=(request,)).start()

    def work(self, request):
        sender = request.get_response_sender()
        open(os.environ["SCRIPT_TEST_SIGN"] + ".began", "w").close()
        while not sender.is_cancelled():
            sender.send(answer(request.inputs()[0].as_numpy()))
            time.sleep(0.001)
        open(os.environ["SCRIPT_TEST_SIGN"], "w").close()
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

FAILS = """
class TritonPythonModel:
    def execute(self, requests):
        given = order(requests[0]).get("how", "code")
        if given == "die":
            os._exit(3)
        error = pb_utils.TritonError("not today", pb_utils.TritonError.UNSUPPORTED)
        return [pb_utils.InferenceResponse(error=error) for _ in requests]
"""

SCRIPT = """
class TritonPythonModel:
    async def execute(self, requests):
        return [await self.one(request) for request in requests]

    async def one(self, request):
        given = order(request)
        return await getattr(self, given["do"])(request, given, request.inputs()[0].as_numpy())

    async def gather(self, request, given, array):
        calls = [asked("double", array + step).async_exec() for step in range(given["calls"])]
        responses = await asyncio.gather(*calls)
        return answer(sum(one.output_tensors()[0].as_numpy() for one in responses))

    async def square(self, request, given, array):
        stream = await asked("square", array).async_exec(decoupled=True)
        found = [one async for one in stream]
        sums = [one.output_tensors()[0].as_numpy() for one in found if one.output_tensors()]
        ends = sum(not one.output_tensors() for one in found)
        return answer(np.array([[len(sums), ends]], np.float32))

    async def square_in_turn(self, request, given, array):
        found = 0
        for response in asked("square", array).exec(decoupled=True):
            if response.output_tensors():
                found += 1
        return answer(np.array([[found]], np.float32))

    async def repeat(self, request, given, array):
        numbers = array.ravel().astype(np.int32)
        call = pb_utils.InferenceRequest(
            model_name="repeat",
            requested_output_names=["OUT", "IDX"],
            inputs=[
                pb_utils.Tensor("IN", numbers),
                pb_utils.Tensor("DELAY", np.zeros(len(numbers) - given["short"], np.uint32)),
                pb_utils.Tensor("WAIT", np.zeros(1, np.uint32)),
            ],
            trace=request.trace(),
        )
        found = []
        async for response in await call.async_exec(decoupled=True):
            if response.has_error():
                return failure(response)
            found += [one.as_numpy()[0] for one in response.output_tensors()]
        return answer(np.array([found], np.float32))

    async def first(self, request, given, array):
        stream = asked("endless", array).exec(decoupled=True)
        for response in stream:
            stream.cancel()
        return answer(array)

    async def wait(self, request, given, array):
        open(os.environ["SCRIPT_TEST_SIGN"] + ".waits", "w").close()
        stream = await asked("endless", array).async_exec(decoupled=True)
        async for response in stream:
            if response.has_error():
                return failure(response)
        return answer(array)

    async def told(self, request, given, array):
        more = {"parameters": {"do": "tell", "k": 7}, "request_id": "inner", "timeout": 5_000_000}
        return await self.passed(asked("teller", array, **more))

    async def plainly(self, request, given, array):
        more = json.loads(given.get("more", "{}"))
        return await self.passed(asked(given["callee"], array, parameters=more))

    async def passed(self, call):
        response = await call.async_exec()
        if response.has_error():
            return failure(response)
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("OUT", response.output_tensors()[0].as_numpy())],
            parameters=json.loads(response.parameters()),
        )
"""

TELLER = """
class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())],
                parameters={
                    "id": request.request_id(),
                    "timeout": request.timeout(),
                    "parameters": request.parameters(),
                },
            )
            for request in requests
        ]
"""
