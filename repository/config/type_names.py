"""How the v2 protocol writes the data types of a model's config, e.g. "FP32" for TYPE_FP32.

Apart from `repository.config.tensors`, so that nobody needs numpy for a name.
"""

from tritonclient.grpc import model_config_pb2 as pb

NAMES: dict[int, str] = {
    number: "BYTES" if number == pb.TYPE_STRING else name.removeprefix("TYPE_")
    for name, number in pb.DataType.items()
    if number != pb.TYPE_INVALID
}
