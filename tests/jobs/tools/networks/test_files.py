"""The ONNX file of a version."""

from pathlib import Path

import pytest
from tritonclient.grpc import model_config_pb2 as pb

from control.jobs.specs.convert import ConvertSpec
from control.jobs.specs.optimise import OptimiseSpec
from jobs.tools.convert.formats import conversion_of
from jobs.tools.networks.files import source_file
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
