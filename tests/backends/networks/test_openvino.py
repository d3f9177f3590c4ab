"""What OpenVINO's backend does beyond the contract of all backends."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from backends.errors import ExecutionFailed, LoadFailed
from backends.networks.openvino import OpenVino
from backends.seam import Device
from repository.model import ModelVersion
from support.backend_cases import save_openvino, save_pairs
from support.runtime import CPU, batch_of, make_version, member, with_config


def loaded_version(root: Path, config: str = "", count: int = 1) -> list[object]:
    version = make_version(root, config)
    save_openvino(version.path / "model.xml")
    return list(OpenVino().load(completed(version), CPU, count).instances)


def completed(version: ModelVersion) -> ModelVersion:
    return with_config(version, OpenVino().complete(version, 4))


def test_an_onnx_file_is_served_by_openvino_where_the_config_names_it(tmp_path: Path) -> None:
    version = make_version(tmp_path, 'backend: "openvino"')
    save_pairs(version.path / "model.onnx")

    version = completed(version)
    (instance,) = OpenVino().load(version, CPU, 1).instances
    rows = np.ones((3, 2), np.float32)
    (result,) = instance.execute(batch_of(member(a=rows, b=-rows))).results

    assert version.config.default_model_filename == "model.onnx"
    assert {name: array.tolist() for name, array in result.items()} == {  # type: ignore[union-attr]
        "X": rows.tolist(),
        "Y": (-rows).tolist(),
    }


def test_instances_on_threads_of_their_own_do_not_mix_their_answers(tmp_path: Path) -> None:
    instances = loaded_version(tmp_path, count=3)

    def right(at: int) -> bool:
        for turn in range(300):
            rows = np.full((1 + turn % 4, 2), at * 1000 + turn, np.float32)
            (result,) = instances[at].execute(batch_of(member(a=rows, b=-rows))).results  # type: ignore[attr-defined]
            if not ((result["X"] == rows).all() and (result["Y"] == -rows).all()):
                return False
        return True

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(right, range(3))) == [True] * 3


def test_an_answer_stays_as_it_is_while_the_next_request_runs(tmp_path: Path) -> None:
    (instance,) = loaded_version(tmp_path)
    first, second = np.zeros((1, 2), np.float32), np.ones((1, 2), np.float32)

    (kept,) = instance.execute(batch_of(member(a=first, b=first))).results  # type: ignore[attr-defined]
    instance.execute(batch_of(member(a=second, b=second)))  # type: ignore[attr-defined]

    assert kept["X"].tolist() == [[0, 0]]


def test_an_unknown_precision_is_refused_naming_those_there_are(tmp_path: Path) -> None:
    parameter = 'parameters { key: "INFERENCE_PRECISION_HINT" value { string_value: "int4" } }'
    with pytest.raises(LoadFailed, match="'int4'; it must be one of f32, bf16, f16"):
        loaded_version(tmp_path, parameter)


def test_weights_that_lie_outside_the_versions_folder_are_refused(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    save_openvino(version.path / "model.xml")
    outside = tmp_path / "elsewhere.bin"
    (version.path / "model.bin").rename(outside)
    (version.path / "model.bin").symlink_to(outside)

    with pytest.raises(LoadFailed, match=r"'model\.bin' leads out of the version's folder"):
        OpenVino().complete(version, 4)


def test_a_file_of_another_framework_is_not_read_under_openvinos_name(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    (version.path / "model.xml").write_text("node { name: 'x' op: 'Placeholder' }")
    (version.path / "model.bin").write_bytes(b"")

    with pytest.raises(LoadFailed, match="is not an OpenVINO model: it has no <net> element"):
        OpenVino().complete(version, 4)


def test_a_graph_cut_short_is_refused_without_the_sources_of_openvino(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    save_openvino(version.path / "model.xml")
    text = (version.path / "model.xml").read_text()
    (version.path / "model.xml").write_text(text[: len(text) // 2])

    with pytest.raises(LoadFailed, match="is not a model that OpenVINO reads") as caught:
        OpenVino().complete(version, 4)
    assert ".cpp" not in str(caught.value)


def test_a_gpu_is_refused_with_what_would_work(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    save_openvino(version.path / "model.xml")
    with pytest.raises(LoadFailed, match=r"cuda:0 was asked for.*KIND_CPU"):
        OpenVino().load(completed(version), Device("cuda", 0, 1), 1)


def test_shapes_that_the_graph_refuses_are_the_requests_error(tmp_path: Path) -> None:
    (instance,) = loaded_version(tmp_path)
    wide = np.ones((1, 3), np.float32)
    with pytest.raises(ExecutionFailed, match=r"openvino: Can't set the input tensor") as caught:
        instance.execute(batch_of(member(a=wide, b=wide)))  # type: ignore[attr-defined]
    assert ".cpp" not in str(caught.value)
