"""What the server says of itself and its models, as the protocol's messages and as JSON.

Pure: both front ends ask here. The JSON form of a message is the one Triton prints: proto field
names, enum names, every default spelled out, 64-bit integers as numbers.
"""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf.message import Message
from tritonclient.grpc import service_pb2 as pb

from backends.registry import PLATFORMS
from repository.model import ModelConfig
from server.served_version import ServedVersion, ServingState, VersionRow
from server.signature import TensorSpec

Json = dict[str, Any]

EXTENSIONS = (
    "classification",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
)
"""The v2 extensions this server offers, in Triton's names and order."""

INDEX_STATES: dict[ServingState, str] = {
    ServingState.LOADING: "LOADING",
    ServingState.READY: "READY",
    ServingState.DRAINING: "UNLOADING",
    ServingState.UNLOADED: "UNAVAILABLE",
    ServingState.FAILED: "UNAVAILABLE",
}
"""Our states in the words of Triton's repository index."""

_PLATFORM_OF = {backend: platform for platform, backend in PLATFORMS.items()}


def server_metadata(
    name: str, version: str, offers_cuda: bool = False
) -> pb.ServerMetadataResponse:
    """`offers_cuda`: whether clients can register memory of a device here."""
    extensions = list(EXTENSIONS)
    if offers_cuda:
        extensions.insert(extensions.index("system_shared_memory") + 1, "cuda_shared_memory")
    return pb.ServerMetadataResponse(name=name, version=version, extensions=extensions)


def server_metadata_json(name: str, version: str, offers_cuda: bool = False) -> Json:
    return to_json(server_metadata(name, version, offers_cuda))


def metadata(served: ServedVersion, versions: Iterable[int]) -> pb.ModelMetadataResponse:
    """Name, platform, inputs and outputs; `versions` are those to list.

    Shapes have a leading -1 when the model batches.
    """
    signature = served.signature
    return pb.ModelMetadataResponse(
        name=served.version.name,
        versions=[str(number) for number in sorted(versions)],
        platform=platform(served.version.config),
        inputs=[_tensor(spec) for spec in signature.inputs.values()],
        outputs=[_tensor(spec) for spec in signature.outputs.values()],
    )


def metadata_json(served: ServedVersion, versions: Iterable[int]) -> Json:
    return to_json(metadata(served, versions))


def versions_of(name: str, served: Sequence[ServedVersion]) -> list[int]:
    """The numbers under which `name` answers now, ascending."""
    return sorted(one.version.number for one in served if one.version.name == name)


def platform(config: ModelConfig) -> str:
    """As configured, else the platform Triton gives this backend, else the backend's name."""
    found: str = config.platform or _PLATFORM_OF.get(config.backend, config.backend)
    return found


def config(served: ServedVersion) -> pb.ModelConfigResponse:
    """The completed config the version is served with."""
    return pb.ModelConfigResponse(config=served.version.config)


def config_json(served: ServedVersion) -> Json:
    return to_json(served.version.config)


def index(rows: Iterable[VersionRow]) -> pb.RepositoryIndexResponse:
    return pb.RepositoryIndexResponse(
        models=[pb.RepositoryIndexResponse.ModelIndex(**row) for row in index_json(rows)]
    )


def index_json(rows: Iterable[VersionRow]) -> list[dict[str, str]]:
    """One object per row: name, and version, state, reason where there is something to say."""
    return [_index_row(row) for row in rows]


def _index_row(row: VersionRow) -> dict[str, str]:
    found = {"name": row.name}
    if row.version is not None:
        found["version"] = str(row.version)
    if row.state is not None:
        found["state"] = INDEX_STATES[row.state]
    if row.reason:
        found["reason"] = row.reason
    return found


def _tensor(spec: TensorSpec) -> pb.ModelMetadataResponse.TensorMetadata:
    return pb.ModelMetadataResponse.TensorMetadata(
        name=spec.name, datatype=spec.datatype, shape=spec.full_dims
    )


def to_json(message: Message) -> Json:
    """A message as Triton prints it; sub-messages and members of a oneof only where set."""
    return {
        field.name: _field(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _field(field: Any, value: Any) -> Any:
    if not field.is_repeated:
        return _value(field, value)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        of_value = field.message_type.fields_by_name["value"]
        return {str(key): _value(of_value, value[key]) for key in value}
    return [_value(field, one) for one in value]


def _value(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        enum_value = field.enum_type.values_by_number.get(value)
        return value if enum_value is None else enum_value.name
    if isinstance(value, Message):
        return to_json(value)
    return b64encode(value).decode() if isinstance(value, bytes) else value
