"""What a model's auto_complete_config may change, and how the config is handed to it."""

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.text_format import Parse

from backends.python.config import ModelConfig, to_dictionary
from repository.model import ModelConfig as ConfigMessage
from support.hosting import (
    ECHO_CONFIG,
    HEAD,
    hosted,
)


def test_a_model_completes_its_own_config(tmp_path: Path) -> None:
    code = (
        HEAD + "class TritonPythonModel:\n"
        "    @staticmethod\n"
        "    def auto_complete_config(config):\n"
        "        config.add_input({'name': 'IN', 'data_type': 'TYPE_FP32', 'dims': [4]})\n"
        "        config.add_output({'name': 'OUT', 'data_type': 'TYPE_FP32', 'dims': [4]})\n"
        "        config.set_max_batch_size(16)\n"
        "        config.set_dynamic_batching()\n"
        "        return config\n"
        "    def execute(self, requests):\n"
        "        return [answer(r.inputs()[0].as_numpy()) for r in requests]\n"
    )
    with hosted(tmp_path, code, "") as instance:
        completed = instance.config
    wanted = Parse(
        'max_batch_size: 16 input { name: "IN" data_type: TYPE_FP32 dims: 4 }'
        'output { name: "OUT" data_type: TYPE_FP32 dims: 4 } dynamic_batching {}',
        ConfigMessage(name="echo", backend="python"),
    )
    assert completed == wanted


def completing(text: str = ECHO_CONFIG) -> ModelConfig:
    written = Parse(text, ConfigMessage(name="echo", backend="python"))
    return ModelConfig(json.dumps(to_dictionary(written)))


@pytest.mark.parametrize(
    ("tensor", "told"),
    [
        ({"data_type": "TYPE_FP32", "dims": [1]}, "^input in .* is missing 'name' property"),
        ({"name": "IN", "dims": [1]}, "input 'IN' in .* is missing 'data_type' property"),
        ({"name": "IN", "data_type": "TYPE_FP32"}, "is missing 'dims' property"),
        ({"name": "IN", "reshape": []}, "contains property other than 'name', 'data_type'"),
        (
            {"name": "IN", "data_type": "TYPE_INT8", "dims": [-1]},
            "configuration expects datatype TYPE_FP32 for input 'IN', model provides TYPE_INT8",
        ),
        (
            {"name": "IN", "data_type": "TYPE_FP32", "dims": [3]},
            r"model expects dims \[3\] but the model configuration specifies dims \[-1\]",
        ),
    ],
)
def test_completing_against_the_config_is_refused(tensor: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        completing().add_input(tensor)


def test_completing_against_scheduler_or_policy_is_refused() -> None:
    config = completing(ECHO_CONFIG + "sequence_batching {}")
    with pytest.raises(ValueError, match="scheduling_choice as 'sequence_batching'"):
        config.set_dynamic_batching()
    config.set_model_transaction_policy({"decoupled": False})
    with pytest.raises(ValueError, match="already set to 'False'"):
        config.set_model_transaction_policy({"decoupled": True})
    with pytest.raises(ValueError, match="other than 'decoupled'"):
        config.set_model_transaction_policy({"coupled": True})


def test_a_config_dictionary_has_defaults_and_plain_integers() -> None:
    dictionary = completing(
        ECHO_CONFIG + "dynamic_batching { max_queue_delay_microseconds: 5 "
        "priority_queue_policy { key: 1 value { default_timeout_microseconds: 9 } } }"
    ).as_dict()
    batching = dictionary["dynamic_batching"]
    assert batching["max_queue_delay_microseconds"] == 5
    assert batching["priority_queue_policy"]["1"]["default_timeout_microseconds"] == 9
    assert dictionary["input"][0]["optional"] is False
    assert dictionary["input"][0]["dims"] == [-1]
