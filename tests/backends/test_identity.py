"""Identity gives back what it got, as late as it was told to."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from backends.errors import LoadFailed
from backends.identity import IdentityBackend
from support.runtime import CPU, batch_of, make_version, member, with_config

TWO = """
max_batch_size: 4
input { name: "A" data_type: TYPE_FP32 dims: [ 2 ] }
input { name: "B" data_type: TYPE_INT32 dims: [ 1 ] optional: true }
output { name: "X" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "Y" data_type: TYPE_INT32 dims: [ 1 ] }
"""


def test_lone_folder_gets_one_float_input_and_output(tmp_path: Path) -> None:
    config = IdentityBackend().complete(make_version(tmp_path), 4)

    assert config.backend == "identity"
    assert (config.input[0].name, list(config.input[0].dims)) == ("INPUT0", [-1])
    assert config.output[0].name == "OUTPUT0"
    assert config.max_batch_size == 0


def test_each_output_returns_the_input_of_its_place(tmp_path: Path) -> None:
    (instance,) = IdentityBackend().load(make_version(tmp_path, TWO), CPU, 1).instances
    a, b = np.ones((1, 2), np.float32), np.full((1, 1), 7, np.int32)

    first, second, third = instance.execute(
        batch_of(member(A=a, B=b), member(A=a), member(("Y",), A=a, B=b))
    ).results

    assert isinstance(first, Mapping)
    assert first["X"] is a
    assert first["Y"] is b
    assert isinstance(second, Mapping)
    assert list(second) == ["X"]
    assert isinstance(third, Mapping)
    assert list(third) == ["Y"]


def test_single_pair_answers_every_member(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    version = with_config(version, IdentityBackend().complete(version, 4))
    (instance,) = IdentityBackend().load(version, CPU, 1).instances
    sent = [np.full((1, 3), value, np.float32) for value in range(3)]

    outcome = instance.execute(batch_of(*[member(INPUT0=array) for array in sent]))

    for array, result in zip(sent, outcome.results, strict=True):
        assert isinstance(result, Mapping)
        assert result["OUTPUT0"] is array


def test_delay_is_slept_and_takes_no_core(tmp_path: Path) -> None:
    config = """
    parameters { key: "execute_delay_ms" value { string_value: "20" } }
    parameters { key: "instance_wise_delay_multiplier" value { string_value: "2" } }
    """
    version = make_version(tmp_path, config)
    version = with_config(version, IdentityBackend().complete(version, 4))

    instances = IdentityBackend().load(version, CPU, 2).instances
    spent = [
        instance.execute(batch_of(member(INPUT0=np.ones(1, np.float32)), batched=False)).infer_ns
        for instance in instances
    ]

    assert [instance.cores for instance in instances] == [0, 0]
    assert spent[0] >= 20_000_000
    assert spent[1] >= 40_000_000


def test_without_a_delay_it_takes_a_core(tmp_path: Path) -> None:
    (instance,) = IdentityBackend().load(make_version(tmp_path, TWO), CPU, 1).instances

    assert instance.cores == 1


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        (TWO.replace('"Y" data_type: TYPE_INT32', '"Y" data_type: TYPE_FP64'), "TYPE_FP64"),
        ('input { name: "A" } output { name: "X" } output { name: "Y" }', "2 outputs need as many"),
    ],
)
def test_outputs_that_mirror_nothing_are_refused(
    tmp_path: Path, config: str, complaint: str
) -> None:
    with pytest.raises(LoadFailed, match=complaint):
        IdentityBackend().complete(make_version(tmp_path, config), 4)


def test_delay_that_is_no_number_is_refused(tmp_path: Path) -> None:
    config = 'parameters { key: "execute_delay_ms" value { string_value: "soon" } }'

    with pytest.raises(LoadFailed, match="execute_delay_ms is 'soon'"):
        IdentityBackend().load(make_version(tmp_path, config), CPU, 1)


@pytest.mark.parametrize("text", ["9" * 5000, "0" * 18 + "9" * 9, "86400001"])
def test_a_delay_of_more_than_a_day_is_refused(tmp_path: Path, text: str) -> None:
    config = f'parameters {{ key: "execute_delay_ms" value {{ string_value: "{text}" }} }}'
    with pytest.raises(LoadFailed, match="it must be a whole number from 0 to 86400000"):
        IdentityBackend().load(make_version(tmp_path, config), CPU, 1)


def test_reshaped_inputs_are_answered_in_the_shape_of_the_outputs(tmp_path: Path) -> None:
    text = """max_batch_size: 4
    input { name: "A" data_type: TYPE_FP32 dims: [ 2, -1 ] reshape { shape: [ 1, 2, -1 ] } }
    output { name: "X" data_type: TYPE_FP32 dims: [ 2, -1 ] reshape { shape: [ 1, 2, -1 ] } }
    output { name: "Y" data_type: TYPE_FP32 dims: [ 1, 2, -1 ] }
    input { name: "B" data_type: TYPE_FP32 dims: [ 2, -1 ] reshape { shape: [ 1, 2, -1 ] } }"""
    (instance,) = IdentityBackend().load(make_version(tmp_path, text), CPU, 1).instances
    a = np.arange(12, dtype=np.float32).reshape(2, 2, 3)

    (result,) = instance.execute(batch_of(member(A=a, B=a))).results

    assert isinstance(result, Mapping)
    np.testing.assert_array_equal(result["X"], a)
    assert result["Y"].shape == (2, 1, 2, 3)
