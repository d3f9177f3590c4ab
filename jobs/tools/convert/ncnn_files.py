"""ONNX to ncnn (model.param, model.bin) by pnnx."""

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from tritonclient.grpc import model_config_pb2 as pb

from control.jobs.specs.convert import ConvertSpec
from jobs.tools.convert.onnx_results import session_runner
from jobs.tools.convert.source_network import SourceNetwork
from jobs.tools.networks.files import load_network, version_name
from jobs.tools.networks.tensors import NetworkTensor, RowRunner, Rows
from jobs.tools.result.config import result_config
from jobs.tools.work import refuse

LONGEST_S = 600
_BLOB = re.compile(r"(in|out)(\d+)")


def open_source(path: Path, config: pb.ModelConfig, spec: ConvertSpec) -> SourceNetwork:
    """The ONNX file, checked. Refuses what ncnn has no form for: open sizes, other types."""
    whose = version_name(spec)
    for package in ("pnnx", "ncnn"):
        if importlib.util.find_spec(package) is None:
            refuse(f"conversions to ncnn need the package {package}, which is not installed here")
    load_network(path, whose)
    run, inputs, outputs = session_runner(path, whose)
    _require_shapes(inputs, whose)
    result = result_config(config, spec.model, "ncnn", same_runtime=False)
    names = ([one.name for one in inputs], [one.name for one in outputs])

    def write(folder: Path) -> list[str]:
        _write(path, folder, inputs, names, spec)
        return []

    return SourceNetwork(
        "an ONNX network", inputs, run, write, lambda folder: _open(folder, names), result,
        ("pnnx", "ncnn", "onnxruntime"),
    )  # fmt: skip


def _require_shapes(inputs: list[NetworkTensor], whose: str) -> None:
    for one in inputs:
        if None in one.shape[1:] or np.dtype(one.dtype) != np.float32:
            refuse(
                f"input '{one.name}' of {whose} is {np.dtype(one.dtype).name} {list(one.shape)}; "
                "ncnn needs float32 and every size behind the rows to be fixed"
            )


def _write(
    path: Path,
    folder: Path,
    inputs: list[NetworkTensor],
    names: tuple[list[str], list[str]],
    spec: ConvertSpec,
) -> None:
    """pnnx writes beside its input, so it works on a copy in the folder's own scratch."""
    import pnnx

    work = folder / "pnnx"
    work.mkdir()
    shutil.copyfile(path, work / "network.onnx")
    shapes = ",".join(f"[{','.join(str(size or 1) for size in one.shape)}]" for one in inputs)
    command = [pnnx.EXEC_PATH, "network.onnx", f"inputshape={shapes}"]
    command.append(f"fp16={int(spec.weights == 'fp16')}")
    try:
        ended = subprocess.run(
            command, cwd=work, capture_output=True, text=True, timeout=LONGEST_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        refuse(f"pnnx did not finish: {error}")
    print(ended.stdout, ended.stderr)  # noqa: T201 - into the job's log
    graph = work / "network.ncnn.param"
    if ended.returncode or not graph.is_file():
        refuse(f"pnnx cannot convert {path.name}: it ended with {ended.returncode}; see the log")
    (folder / "model.param").write_text(with_names(graph.read_text(), names))
    shutil.copyfile(work / "network.ncnn.bin", folder / "model.bin")
    shutil.rmtree(work)


def with_names(graph: str, names: tuple[list[str], list[str]]) -> str:
    """The text of a graph with the network's names for its inputs and outputs (in0, out0, …)."""
    wanted = {"in": names[0], "out": names[1]}

    def renamed(word: str) -> str:
        found = _BLOB.fullmatch(word)
        if found is None or int(found[2]) >= len(wanted[found[1]]):
            return word
        return wanted[found[1]][int(found[2])]

    lines = graph.splitlines()
    return "\n".join(
        [*lines[:2], *(" ".join(renamed(word) for word in line.split()) for line in lines[2:]), ""]
    )


def _open(folder: Path, names: tuple[list[str], list[str]]) -> RowRunner:
    import ncnn

    network = ncnn.Net()
    network.opt.num_threads = 1
    network.opt.use_fp16_storage = network.opt.use_fp16_packed = False
    network.opt.use_fp16_arithmetic = network.opt.use_bf16_storage = False
    if network.load_param(str(folder / "model.param")) or network.load_model(
        str(folder / "model.bin")
    ):
        refuse("ncnn cannot load the network that pnnx wrote")

    def run(rows: Rows) -> Rows:
        parts = [
            _run_one(network, {name: array[at] for name, array in rows.items()}, names[1])
            for at in range(len(next(iter(rows.values()))))
        ]
        return {name: np.stack([part[name] for part in parts]) for name in names[1]}

    def _run_one(network: Any, row: Rows, outputs: list[str]) -> dict[str, Any]:
        with network.create_extractor() as extractor:
            for name, array in row.items():
                extractor.input(name, ncnn.Mat(np.ascontiguousarray(array)).clone())
            return {name: np.array(extractor.extract(name)[1]) for name in outputs}

    return run
