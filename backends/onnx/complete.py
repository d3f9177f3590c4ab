"""What a model.onnx says of itself, read without running or loading any of it."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import SparseTensorProto, TensorProto
from tritonclient.grpc import model_config_pb2 as pb

from backends.artefact import Artefact, TensorDescription, inside, refuse
from backends.onnx.functions import functions_problem
from backends.onnx.operators import unsupported
from repository.model import ModelVersion

TYPES: dict[int, int] = {
    TensorProto.BOOL: pb.TYPE_BOOL,
    TensorProto.UINT8: pb.TYPE_UINT8,
    TensorProto.UINT16: pb.TYPE_UINT16,
    TensorProto.UINT32: pb.TYPE_UINT32,
    TensorProto.UINT64: pb.TYPE_UINT64,
    TensorProto.INT8: pb.TYPE_INT8,
    TensorProto.INT16: pb.TYPE_INT16,
    TensorProto.INT32: pb.TYPE_INT32,
    TensorProto.INT64: pb.TYPE_INT64,
    TensorProto.FLOAT16: pb.TYPE_FP16,
    TensorProto.FLOAT: pb.TYPE_FP32,
    TensorProto.DOUBLE: pb.TYPE_FP64,
    TensorProto.STRING: pb.TYPE_STRING,
    TensorProto.BFLOAT16: pb.TYPE_BF16,
}

_ADDRESS = "_ORT_MEM_ADDR_"


def read_artefact(version: ModelVersion, path: Path) -> Artefact:
    """Inputs and outputs of the graph in `path`, in order.

    Raises LoadFailed when the file is no ONNX model, keeps weights outside its folder, or becomes
    too much in onnxruntime.
    """
    try:
        # onnxruntime reads protobuf whatever the name; onnx would take "model.json" for JSON.
        model = onnx.load(path, format="protobuf", load_external_data=False)
    except DecodeError as error:
        refuse(version, f"{path.name} is not an ONNX model, or is cut short: {error}")
    except OSError as error:
        refuse(version, f"{path.name} cannot be read: {error.strerror}")
    if not model.HasField("graph") or not model.graph.output:
        refuse(version, f"{path.name} is not an ONNX model: it has no graph with outputs")
    _check_external_data(version, path, model)
    if problem := functions_problem(model):
        refuse(version, f"{path.name} {problem}")
    libraries = version.config.model_operations.op_library_filename
    if problem := unsupported(model, bool(libraries)):
        refuse(version, f"{path.name} {problem}")
    defaults = {tensor.name for tensor in model.graph.initializer}
    defaults.update(tensor.values.name for tensor in model.graph.sparse_initializer)
    describe = partial(_describe, defaults)
    inputs = tuple(describe(value) for value in model.graph.input)
    return Artefact(path.name, inputs, tuple(describe(value) for value in model.graph.output))


def _check_external_data(version: ModelVersion, path: Path, model: onnx.ModelProto) -> None:
    folder = path.parent.relative_to(version.path)
    for tensor in _tensors(model):
        for entry in tensor.external_data:
            if entry.key == "location":
                _check_location(version, path, tensor, entry.value)
                data = inside(version, str(folder / entry.value), f"tensor '{tensor.name}' of file")
                if not data.is_file():
                    refuse(
                        version,
                        f"{path.name} keeps the weights of '{tensor.name}' in '{entry.value}', "
                        "which is missing from the version's folder",
                    )


def _check_location(version: ModelVersion, path: Path, tensor: TensorProto, location: str) -> None:
    """onnxruntime takes some locations for addresses in its own memory."""
    if _ADDRESS in location:
        refuse(version, f"{path.name} keeps the weights of '{tensor.name}' at a memory address")


def _tensors(model: onnx.ModelProto) -> Iterator[TensorProto]:
    """Every tensor stored anywhere in the model, those of subgraphs and functions too."""
    graphs = [model.graph]
    for training in model.training_info:
        graphs += [training.initialization, training.algorithm]
    nodes = [node for function in model.functions for node in function.node]
    attributes = [one for function in model.functions for one in function.attribute_proto]
    while graphs or nodes or attributes:
        if graphs:
            graph = graphs.pop()
            yield from graph.initializer
            yield from _parts(graph.sparse_initializer)
            nodes.extend(graph.node)
        while nodes:
            attributes.extend(nodes.pop().attribute)
        while attributes:
            attribute = attributes.pop()
            yield from (attribute.t, *attribute.tensors)
            yield from _parts((attribute.sparse_tensor, *attribute.sparse_tensors))
            graphs.extend(attribute.graphs)
            if attribute.HasField("g"):
                graphs.append(attribute.g)


def _parts(sparse: Iterable[SparseTensorProto]) -> Iterator[TensorProto]:
    for tensor in sparse:
        yield from (tensor.values, tensor.indices)


def _describe(defaults: set[str], value: onnx.ValueInfoProto) -> TensorDescription:
    kind = value.type.WhichOneof("value")
    optional = kind == "optional_type"
    inner = value.type.optional_type.elem_type if optional else value.type
    if inner.WhichOneof("value") != "tensor_type":
        held = str(kind).removesuffix("_type")
        problem = (
            f"is a {held}, not a tensor: export it as tensors (scikit-learn: zipmap=False), "
            "or list only the tensors in config.pbtxt"
        )
        return TensorDescription(value.name, pb.TYPE_INVALID, None, problem=problem)
    tensor = inner.tensor_type
    data_type = TYPES.get(tensor.elem_type, pb.TYPE_INVALID)
    problem = ""
    if data_type == pb.TYPE_INVALID:
        problem = f"has type {_type_name(tensor.elem_type)}, which the protocol does not know"
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(
            dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim
        )
    return TensorDescription(
        value.name, data_type, shape, optional, value.name not in defaults, problem
    )


def _type_name(elem_type: int) -> str:
    names = TensorProto.DataType.items()
    return next((name for name, number in names if number == elem_type), str(elem_type))
