import json
import logging
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from backends.errors import ExecutionFailed, FaultyModel, LoadFailed, ModelError
from backends.process.instance import HostedInstance
from backends.python import api as pb_utils
from backends.python.backend import PythonModels
from support.hosting import (
    CPU,
    ECHO,
    ECHO_CONFIG,
    HEAD,
    Ask,
    batch_of,
    floats,
    hosted,
    model,
    one,
    until,
    write_model,
)

STRINGS = """
input { name: "IN" data_type: TYPE_STRING dims: -1 }
output { name: "OUT" data_type: TYPE_STRING dims: -1 }
"""


def test_checking_names_the_backend_and_runs_nothing(tmp_path: Path) -> None:
    version = write_model(tmp_path, "raise SystemExit('ran')")
    version.config.backend = ""
    completed = PythonModels().complete(version, 4)
    assert (completed.backend, completed.default_model_filename) == ("python", "model.py")
    assert version.config.backend == ""


def test_a_model_may_have_a_server_py_of_its_own(tmp_path: Path) -> None:
    code = model("import server\nreturn [answer(np.float32([[server.ANSWER]])) for _ in requests]")
    with hosted(tmp_path, code, server="ANSWER = 42") as instance:
        assert one(instance, floats(0))["OUT"].tolist() == [[42]]


def test_our_own_packages_are_not_there_for_user_code(tmp_path: Path) -> None:
    code = "import schedulers.policy.queue\n" + ECHO
    with pytest.raises(LoadFailed, match="ModuleNotFoundError: No module named 'schedulers'"):
        HostedInstance(write_model(tmp_path, code), CPU, "echo_0_0")


def test_relative_imports_work_as_in_triton(tmp_path: Path) -> None:
    code = model(
        "return [answer(np.float32([[beside.ANSWER]])) for _ in requests]",
        HEAD + "from . import beside\n",
    )
    with hosted(tmp_path, code, beside="ANSWER = 3") as instance:
        assert one(instance, floats(0))["OUT"].tolist() == [[3]]


def test_loading_leaves_nothing_in_the_versions_folder(tmp_path: Path) -> None:
    with hosted(tmp_path, "import beside\n" + ECHO, beside=""):
        names = {path.name for path in (tmp_path / "echo" / "1").iterdir()}
    assert names == {"model.py", "beside.py"}


def test_user_code_may_spawn_processes_of_its_own(tmp_path: Path) -> None:
    code = model(
        "import multiprocessing\n"
        "from beside import double\n"
        "with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "    return [answer(np.float32([pool.map(double, [1, 2])]))]"
    )
    with hosted(tmp_path, code, beside="def double(x): return 2 * x") as instance:
        assert one(instance, floats(0, 0))["OUT"].tolist() == [[2, 4]]


def test_strings_go_there_and_back(tmp_path: Path) -> None:
    values = np.array([b"", b"a\0b", "grüße".encode(), b"x" * 100_000], np.object_)
    code = model("return [answer(r.inputs()[0].as_numpy()) for r in requests]")
    with hosted(tmp_path, code, STRINGS) as instance:
        assert one(instance, Ask({"IN": values}), False)["OUT"].tolist() == values.tolist()


def test_strings_may_be_returned_as_str_or_fixed_width_bytes(tmp_path: Path) -> None:
    code = model(
        "text = requests[0].inputs()[0].as_numpy()[0].decode()\n"
        "arrays = {'str': np.array(['ü', 'b'], object), 'fixed': np.array([b'a', b'bc'])}\n"
        "return [answer(arrays[text])]"
    )
    with hosted(tmp_path, code, STRINGS) as instance:
        answers = {
            kind: one(instance, Ask({"IN": np.array([kind], np.object_)}), False)["OUT"].tolist()
            for kind in (b"str", b"fixed")
        }
    assert answers == {b"str": ["ü".encode(), b"b"], b"fixed": [b"a", b"bc"]}


def test_bf16_arrives_and_leaves_bit_exactly(tmp_path: Path) -> None:
    config = ECHO_CONFIG.replace("TYPE_FP32", "TYPE_BF16")
    values = np.array([[0x7FC1, 0x3F80]], np.uint16).view(ml_dtypes.bfloat16)
    with hosted(tmp_path, ECHO, config) as instance:
        result = one(instance, Ask({"IN": values}))["OUT"]
    assert result.view(np.uint16).tolist() == [[0x7FC1, 0x3F80]]


def test_a_request_tells_the_model_what_the_client_said(tmp_path: Path) -> None:
    code = model(
        "r = requests[0]\n"
        "said = [r.request_id(), r.correlation_id(), json.loads(r.parameters()), r.timeout(),\n"
        "        r.requested_output_names(), r.model_name(), r.model_version(), r.flags(),\n"
        "        r.is_cancelled()]\n"
        "return [answer(np.array([json.dumps(said)], object))]"
    )
    ask = Ask(
        {"IN": np.array([b""], np.object_)},
        id="r1",
        requested_outputs=("OUT",),
        parameters={"big": 1 << 70, "on": True},
        correlation_id=(1 << 64) - 1,
        timeout_us=250,
    )
    with hosted(tmp_path, code, STRINGS) as instance:
        said = json.loads(one(instance, ask, False)["OUT"][0])
    parameters = {"big": 1 << 70, "on": True}
    assert said == ["r1", (1 << 64) - 1, parameters, 250, ["OUT"], "echo", 1, 0, False]


def test_initialize_gets_strings_and_finalize_is_called(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = (
        HEAD + "class TritonPythonModel:\n"
        "    def initialize(self, args):\n"
        "        assert all(type(value) is str for value in args.values()), args\n"
        "        config = json.loads(args.pop('model_config'))\n"
        "        output = pb_utils.get_output_config_by_name(config, 'OUT')\n"
        "        self.said = json.dumps([args, output])\n"
        "    def execute(self, requests):\n"
        "        return [answer(np.array([self.said], object)) for _ in requests]\n"
        "    def finalize(self):\n"
        "        print('goodbye')\n"
    )
    with caplog.at_level(logging.INFO, "modelyard.worker"):
        with hosted(tmp_path, code, STRINGS) as instance:
            ask = Ask({"IN": np.array([b""], np.object_)})
            arguments, output = json.loads(one(instance, ask, False)["OUT"][0])
        until(lambda: "echo_0_0: goodbye" in caplog.messages)
    assert output["dims"] == [-1]
    assert arguments == {
        "model_instance_kind": "CPU",
        "model_instance_name": "echo_0_0",
        "model_instance_device_id": "0",
        "model_repository": str(tmp_path / "echo"),
        "model_version": "1",
        "model_name": "echo",
    }


def test_where_an_execution_failed_is_told_of_a_repository_with_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path.parent)
    with (
        hosted(Path(tmp_path.name), model("return [1 / 0]")) as instance,
        pytest.raises(ExecutionFailed, match=r"\n\nAt:\n  echo/1/model.py\(11\): execute$"),
    ):
        one(instance, floats(0))


def test_what_a_model_logs_reaches_our_log_at_its_level(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = model("pb_utils.Logger.log_error('two\\nlines')\nreturn [answer(np.float32([[1]]))]")
    with caplog.at_level(logging.INFO, "modelyard.worker"), hosted(tmp_path, code) as instance:
        one(instance, floats(0))
        until(lambda: "echo_0_0: lines" in caplog.messages)
    assert {record.levelname for record in caplog.records} == {"ERROR"}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            "return [1 / 0]",
            r"^Failed to process the request\(s\) for model instance 'echo_0_0', message: "
            r"ZeroDivisionError: division by zero\n\nAt:\n  echo/1/model.py\(11\): execute$",
        ),
        ("return None", "Expected a list in the execute return, found type '<class 'NoneType'>'"),
        ("return []", r"InferenceRequest\(s\) size is:1, and InferenceResponse\(s\) size is:0"),
        ("return [None]", "Expected an 'InferenceResponse' object .* found type"),
        ("return [answer([1])]", "Tensor 'OUT' needs a numpy array, not list"),
        ("return [answer(np.array(['u']))]", "dtype '<U1' .* is not supported"),
        ("raise pb_utils.TritonModelException('no')", "TritonModelException: no"),
    ],
)
def test_a_batch_that_user_code_fails_is_told_why(tmp_path: Path, body: str, told: str) -> None:
    with hosted(tmp_path, model(body)) as instance, pytest.raises(ExecutionFailed, match=told):
        one(instance, floats(1))


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return [answer(np.float32([[1]]), 'NO')]", "unknown output 'NO'; its config has 'OUT'"),
        ("return [answer(np.int64([[1]]))]", "output 'OUT' as INT64, but its config says FP32"),
        ("return [answer(np.float32([[1], [2]]))]", r"'OUT' with shape \[2,1\] for 1 row;"),
    ],
)
def test_outputs_that_contradict_the_config_are_refused(
    tmp_path: Path, body: str, told: str
) -> None:
    with hosted(tmp_path, model(body)) as instance:
        result = one(instance, floats(1))
    assert isinstance(result, FaultyModel)
    with pytest.raises(FaultyModel, match=told):
        raise result


def test_a_response_with_an_error_fails_only_its_request(tmp_path: Path) -> None:
    code = model(
        "error = pb_utils.TritonError('not you', pb_utils.TritonError.INVALID_ARG)\n"
        "bad = pb_utils.InferenceResponse([], error)\n"
        "return [bad if r.request_id() == 'bad' else answer(r.inputs()[0].as_numpy())\n"
        "        for r in requests]"
    )
    refused = floats(1)
    refused.id = "bad"
    with hosted(tmp_path, code) as instance:
        first, second = instance.execute(batch_of(refused, floats(2))).results
    assert isinstance(first, ModelError)
    assert (str(first), first.code) == ("not you", "INVALID_ARG")
    assert second["OUT"].tolist() == [[2]]


def test_only_the_outputs_asked_for_are_returned(tmp_path: Path) -> None:
    config = ECHO_CONFIG + 'output { name: "MORE" data_type: TYPE_FP32 dims: -1 }'
    code = model(
        "x = np.float32([[1]])\n"
        "pair = [pb_utils.Tensor('OUT', x), pb_utils.Tensor('MORE', x)]\n"
        "return [pb_utils.InferenceResponse(pair) for _ in requests]"
    )
    ask = floats(1)
    ask.requested_outputs = ("MORE",)
    with hosted(tmp_path, code, config) as instance:
        assert list(one(instance, ask)) == ["MORE"]


def test_a_coroutine_execute_is_awaited(tmp_path: Path) -> None:
    code = model("return [answer(np.float32([[7]]))]").replace("def execute", "async def execute")
    with hosted(tmp_path, code) as instance:
        assert one(instance, floats(1))["OUT"].tolist() == [[7]]


@pytest.mark.parametrize(
    ("code", "config", "told"),
    [
        ("def broken(:", ECHO_CONFIG, r"SyntaxError.* At: echo/1/model.py\(1\)"),
        ("import nothing_such", ECHO_CONFIG, r"No module named.*echo/1/model.py\(1\): <module>"),
        ("x = 1", ECHO_CONFIG, "'model.py' has no class 'TritonPythonModel'"),
        ("class TritonPythonModel: ...", ECHO_CONFIG, "does not implement `execute` method"),
        (
            "class TritonPythonModel:\n"
            "    def initialize(self, args):\n"
            "        raise RuntimeError('no weights')\n"
            "    def execute(self, requests): ...",
            ECHO_CONFIG,
            r"initialize failed: RuntimeError: no weights At: echo/1/model.py\(3\): initial",
        ),
        (
            "class TritonPythonModel:\n"
            "    def auto_complete_config(config): return None\n"
            "    def execute(self, requests): ...",
            ECHO_CONFIG,
            "must return a valid pb.ModelConfig object",
        ),
        (
            "class TritonPythonModel:\n"
            "    def auto_complete_config(config):\n"
            "        config.set_max_batch_size(4)\n"
            "        return config\n"
            "    def execute(self, requests): ...",
            ECHO_CONFIG,
            "configuration specified max_batch_size 8, but in auto-complete-config function",
        ),
        (ECHO, "", "has no output: name them in config.pbtxt, or call add_output"),
        (ECHO, ECHO_CONFIG + 'default_model_filename: "../x.py"', "leaves the version's folder"),
        (ECHO, ECHO_CONFIG + 'default_model_filename: "x.py"', "no file 'x.py'; its folder has: m"),
    ],
)
def test_a_model_that_cannot_be_loaded_says_why(
    tmp_path: Path, code: str, config: str, told: str
) -> None:
    version = write_model(tmp_path, code, config)
    with pytest.raises(LoadFailed, match=r"(?s)model 'echo' version 1.*" + told):
        HostedInstance(version, CPU, "echo_0_0")


def test_tensors_exchange_dlpack_with_numpy() -> None:
    tensor = pb_utils.Tensor("X", np.arange(6, dtype=np.int32).reshape(2, 3))
    by_protocol = pb_utils.Tensor.from_dlpack("Y", tensor)
    by_capsule = pb_utils.Tensor.from_dlpack("Y", tensor.to_dlpack())
    assert (
        by_protocol.as_numpy().tolist() == by_capsule.as_numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    )
    assert (by_capsule.shape(), by_capsule.is_cpu(), by_capsule.triton_dtype()) == ([2, 3], True, 8)


def test_type_names_and_numbers_translate_as_in_triton() -> None:
    assert pb_utils.triton_string_to_numpy("TYPE_STRING") is np.object_
    assert pb_utils.triton_string_to_numpy("TYPE_FP32") is np.float32
    assert pb_utils.triton_to_numpy_type(9) is np.int64
    assert pb_utils.numpy_to_triton_type(np.bytes_) == 13
    assert pb_utils.TritonError("x", pb_utils.TritonError.UNAVAILABLE).code() == 4


def test_bf16_leaves_through_dlpack() -> None:
    torch = pytest.importorskip("torch")
    values = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    there = torch.from_dlpack(pb_utils.Tensor("X", values))
    assert there.dtype == torch.bfloat16
    assert pb_utils.Tensor.from_dlpack("Y", there).as_numpy().tolist() == [1.5, -2.0]
