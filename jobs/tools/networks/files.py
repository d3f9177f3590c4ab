"""ONNX files: read with a reason where they are damaged, written with a check."""

import re
from collections.abc import Iterator
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from tritonclient.grpc import model_config_pb2 as pb

from control.jobs.specs.source import JobSource
from jobs.tools.work import refuse

FILE = "model.onnx"
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
MOST_BYTES = 1_900_000_000
"""Largest file, weights beside it included: a protobuf of 2 GiB cannot be written."""


def version_name(spec: JobSource) -> str:
    """The version in messages."""
    return f"model '{spec.model}' version {spec.version}" if spec.version else f"'{spec.model}'"


def source_file(source: Path, config: pb.ModelConfig, spec: JobSource) -> Path:
    """The ONNX file of the version. Refuses a version that has none."""
    path = named_file(source, config.default_model_filename or FILE, version_name(spec))
    if not path.is_file() or path.suffix != ".onnx":
        there = ", ".join(
            sorted(one.name for one in source.iterdir() if one.name != "config.pbtxt")
        )
        refuse(
            f"{version_name(spec)} has no ONNX file (it has {there or 'no file'}); "
            "convert it to ONNX first, by a job of type convert"
        )
    return path


def named_file(source: Path, name: str, whose: str) -> Path:
    """The file that a config names, below the version's folder. Refuses one that is elsewhere."""
    path = source / name
    if not path.resolve().is_relative_to(source.resolve()):
        refuse(
            f"the config of {whose} names the file '{name:.200}', which is not in the version's "
            "folder; default_model_filename must be a path below it"
        )
    return path


def load_network(path: Path, whose: str) -> onnx.ModelProto:
    """Read an ONNX file with its external weights, and check it. Refuses what is damaged."""
    try:
        size = path.stat().st_size
        if size <= MOST_BYTES:
            size = file_size(path)
        if size > MOST_BYTES:
            refuse(
                f"{path.name} of {whose} has {size:,} bytes with its weights; "
                f"at most {MOST_BYTES:,} can be rewritten"
            )
        network = onnx.load(path)
        onnx.checker.check_model(path)
    except (DecodeError, onnx.checker.ValidationError, ValueError, OSError, UnicodeError) as error:
        refuse(f"{path.name} of {whose} is no valid ONNX file: {first_line(error)}")
    return network


def file_size(path: Path) -> int:
    """Bytes of a network's file and of the files with its weights."""
    return sum(one.stat().st_size for one in network_files(path))


def network_files(path: Path) -> list[Path]:
    """A network's file, and those beside it that its tensors name."""
    network = onnx.load(path, load_external_data=False)
    names = sorted({name for graph in _graphs(network.graph) for name in _locations(graph)})
    return [path, *(one for name in names if (one := path.parent / name).is_file())]


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and those in its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.node:
                    yield from _graphs(inner)


def _locations(graph: onnx.GraphProto) -> Iterator[str]:
    constants = [attribute.t for node in graph.node for attribute in node.attribute]
    for tensor in (*graph.initializer, *constants):
        for entry in tensor.external_data:
            if entry.key == "location":
                yield entry.value


def save_network(network: onnx.ModelProto, path: Path) -> None:
    """Write one file, weights inside."""
    onnx.save(network, path)


def node_counts(network: onnx.ModelProto) -> dict[str, int]:
    """Number of nodes by operator, the most frequent first."""
    counts: dict[str, int] = {}
    for node in network.graph.node:
        counts[node.op_type] = counts.get(node.op_type, 0) + 1
    return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))


def first_line(error: BaseException, longest: int = 300) -> str:
    """The first line of an exception's text that says something, shortened."""
    plain = _COLOR.sub("", str(error))
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return text if len(text) <= longest else text[: longest - 1] + "…"
