"""What the server says of its models, as messages and as JSON."""

import asyncio

from server import describe
from server.served_version import ServingState, VersionRow
from support.grpc import IDENTITY, PAIR, put


def described(text, of):
    async def main():
        served = put(text, 2)
        try:
            return of(served)
        finally:
            await served.scheduler.close()

    return asyncio.run(main())


def test_shapes_lead_with_minus_one_when_the_model_batches():
    found = described(IDENTITY, lambda served: describe.metadata_json(served, [3, 2]))
    assert found == {
        "name": "identity",
        "versions": ["2", "3"],
        "platform": "identity",
        "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [-1, 16]}],
        "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": [-1, 16]}],
    }


def test_shapes_are_as_configured_when_the_model_does_not_batch():
    found = described(PAIR, lambda served: describe.metadata(served, [2]))
    assert [list(tensor.shape) for tensor in found.inputs] == [[4], [-1]]
    assert [tensor.datatype for tensor in found.inputs] == ["INT32", "BYTES"]


def test_platform_is_tritons_name_and_else_the_backend():
    def platform(text):
        return described(IDENTITY, lambda served: _platform(served, text))

    def _platform(served, backend):
        config = type(served.version.config)()
        config.CopyFrom(served.version.config)
        config.backend = backend
        return describe.platform(config)

    assert platform("onnxruntime") == "onnxruntime_onnx"
    assert platform("pytorch") == "pytorch_libtorch"
    assert platform("python") == "python"


def test_config_json_prints_defaults_enum_names_and_numbers():
    found = described(IDENTITY, describe.config_json)
    assert found["max_batch_size"] == 8
    assert found["input"][0]["data_type"] == "TYPE_FP32"
    assert found["input"][0]["format"] == "FORMAT_NONE"
    assert found["input"][0]["dims"] == [16]
    assert found["input"][0]["optional"] is False
    assert found["instance_group"] == []
    assert found["metric_tags"] == {}
    assert found["dynamic_batching"]["max_queue_delay_microseconds"] == 0
    assert "sequence_batching" not in found
    assert "version_policy" not in found


def test_config_json_keeps_maps_of_messages():
    text = IDENTITY + 'parameters { key: "k" value { string_value: "v" } }'
    found = described(text, describe.config_json)
    assert found["parameters"] == {"k": {"string_value": "v"}}


def test_index_says_what_triton_says_of_each_state():
    rows = [
        VersionRow("a", 1, ServingState.READY, ""),
        VersionRow("a", 2, ServingState.LOADING, ""),
        VersionRow("a", 3, ServingState.DRAINING, ""),
        VersionRow("b", 1, ServingState.UNLOADED, "unloaded"),
        VersionRow("c", 1, ServingState.FAILED, "weights missing"),
        VersionRow("d", None, ServingState.FAILED, "no version folder"),
        VersionRow("e", None, None, ""),
    ]
    assert describe.index_json(rows) == [
        {"name": "a", "version": "1", "state": "READY"},
        {"name": "a", "version": "2", "state": "LOADING"},
        {"name": "a", "version": "3", "state": "UNLOADING"},
        {"name": "b", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"},
        {"name": "c", "version": "1", "state": "UNAVAILABLE", "reason": "weights missing"},
        {"name": "d", "state": "UNAVAILABLE", "reason": "no version folder"},
        {"name": "e"},
    ]
    assert [row.state for row in describe.index(rows).models][-2:] == ["UNAVAILABLE", ""]


def test_server_metadata_lists_what_is_offered():
    found = describe.server_metadata_json("modelyard", "1.2.3")
    assert (found["name"], found["version"]) == ("modelyard", "1.2.3")
    assert "binary_tensor_data" in found["extensions"]
