"""The ONNX file of a version."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tritonclient.grpc import model_config_pb2 as pb

from control.jobs.specs.convert import ConvertSpec
from control.jobs.specs.optimise import OptimiseSpec
from jobs.tools.convert.formats import conversion_of
from jobs.tools.networks import files
from jobs.tools.networks.files import file_size, load_network, source_file
from jobs.tools.work import WorkRefused


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A version's folder with files outside that its config could name."""
    folder = tmp_path / "version"
    (folder / "parts").mkdir(parents=True)
    for name in ("model.onnx", "model.pkl"):
        (tmp_path / name).write_bytes(b"outside")
    (folder / "parts" / "net.onnx").write_bytes(b"inside")
    return folder


@pytest.mark.parametrize("name", ["../model.onnx", "/model.onnx"])
def test_a_file_outside_of_the_version_is_refused(name: str, source: Path) -> None:
    name = name if name.startswith(".") else str(source.parent / "model.onnx")
    config = pb.ModelConfig(default_model_filename=name)
    with pytest.raises(WorkRefused, match="which is not in the version's folder"):
        source_file(source, config, OptimiseSpec(model="m", version=1))


def test_a_conversion_reads_no_file_outside_of_the_version(source: Path) -> None:
    config = pb.ModelConfig(default_model_filename="../model.pkl")
    with pytest.raises(WorkRefused, match="which is not in the version's folder"):
        conversion_of(source, config, ConvertSpec(model="m", version=1, trusted=True))


def test_a_file_in_a_folder_of_the_version_is_found(source: Path) -> None:
    config = pb.ModelConfig(default_model_filename="parts/net.onnx")
    found = source_file(source, config, OptimiseSpec(model="m", version=1))
    assert found.read_bytes() == b"inside"


def save_apart(path: Path) -> int:
    """A network whose weight lies in a file of quite another name; the bytes of both."""
    weight = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    tensors = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 64]) for name in ("X", "Y")
    ]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["X", "w"], ["Y"])], "g", tensors[:1], tensors[1:], [weight]
    )
    onnx.save(
        helper.make_model(graph), path, save_as_external_data=True, location="weights.bin",
        size_threshold=0,
    )  # fmt: skip
    return path.stat().st_size + (path.parent / "weights.bin").stat().st_size


def test_weights_under_another_name_belong_to_the_network(tmp_path: Path) -> None:
    size = save_apart(tmp_path / "model.onnx")
    (tmp_path / "model.onnx.old").write_bytes(b"of something else")
    assert file_size(tmp_path / "model.onnx") == size > 64 * 64 * 4


def test_weights_that_make_a_network_too_large_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = save_apart(tmp_path / "model.onnx")
    monkeypatch.setattr(files, "MOST_BYTES", size - 1)
    with pytest.raises(WorkRefused, match=f"has {size:,} bytes with its weights"):
        load_network(tmp_path / "model.onnx", "m")
