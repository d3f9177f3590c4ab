"""Networks are prepared for the quantiser."""

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from jobs.tools.quantise.quantisers import prepare_network


def test_preparing_leaves_no_file_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """onnxruntime's symbolic inference writes one there for a node whose shapes it cannot tell."""
    graph = helper.make_graph(
        [helper.make_node("Inverse", ["x"], ["y"], domain="com.microsoft")],
        "inverse",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", "columns"])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    network = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    for name in ("current", "scratch"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "current")
    onnx.save(network, tmp_path / "source.onnx")
    prepared = prepare_network(Path("../source.onnx"), Path("../scratch/prepared.onnx"))
    assert prepared == tmp_path / "scratch" / "prepared.onnx"
    assert [node.op_type for node in onnx.load(prepared).graph.node] == ["Inverse"]
    assert list((tmp_path / "current").iterdir()) == []
