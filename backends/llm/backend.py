"""The backend "llm" as far as checking goes: a config completed from JSON and headers; no torch.

Engines are made by `schedulers.llm`, because they decide for themselves what runs when.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from tritonclient.grpc import model_config_pb2 as pb

from backends.artefact import refuse
from backends.errors import LoadFailed
from backends.llm.chat.template import read_template
from backends.llm.config.decoder import DecoderConfig
from backends.llm.config.encoder import EncoderConfig
from backends.llm.errors import BadCheckpoint, NoRoom, UnknownFamily
from backends.llm.plan import ServePlan, plan_serving
from backends.llm.weights.expected_tensors import expected_tensors
from backends.llm.weights.headers import hold_against, read_headers
from backends.seam import Device, LoadedInstances
from repository.model import ModelConfig, ModelVersion

TEXT_INPUT, STREAM, SAMPLING, EXCLUDE = (
    "text_input",
    "stream",
    "sampling_parameters",
    "exclude_input_in_output",
)
TEXT_OUTPUT = "text_output"
"""Names and types as Triton's vLLM backend has them."""

EMBEDDING = "embedding"
"""Of a model that embeds: float32 [texts, dimensions]."""


class StandardTensor(NamedTuple):
    """An input or output that every such model has."""

    name: str
    data_type: int
    dims: tuple[int, ...] = (1,)
    optional: bool = False


_INPUTS = (
    StandardTensor(TEXT_INPUT, pb.TYPE_STRING),
    StandardTensor(STREAM, pb.TYPE_BOOL, optional=True),
    StandardTensor(SAMPLING, pb.TYPE_STRING, optional=True),
    StandardTensor(EXCLUDE, pb.TYPE_BOOL, optional=True),
)
_OUTPUTS = (StandardTensor(TEXT_OUTPUT, pb.TYPE_STRING),)
_TEXTS = StandardTensor(TEXT_INPUT, pb.TYPE_STRING, (-1,))


class LanguageModels:
    """See `backends.seam.Backend`."""

    def complete(self, version: ModelVersion, default_max_batch: int) -> ModelConfig:
        """The config with the inputs and outputs every language model has.

        Raises LoadFailed naming the file, tensor, field or parameter that is wrong.
        """
        config = ModelConfig()
        config.CopyFrom(version.config)
        config.backend = "llm"
        config.ClearField("platform")
        _refuse_unserved(version)
        embedding = examine(version).embedding
        if embedding is not None and isinstance(embedding.config, EncoderConfig):
            _refuse_gpu(version)
        config.max_batch_size = 0
        config.model_transaction_policy.decoupled = embedding is None
        if embedding is None:
            _complete_tensors(version, config.input, "input", _INPUTS)
            _complete_tensors(version, config.output, "output", _OUTPUTS)
        else:
            vectors = StandardTensor(EMBEDDING, pb.TYPE_FP32, (-1, embedding.dimensions))
            _complete_tensors(version, config.input, "input", (_TEXTS,))
            _complete_tensors(version, config.output, "output", (vectors,))
        return config

    def load(self, version: ModelVersion, device: Device, count: int) -> LoadedInstances:
        raise LoadFailed("language models are loaded by schedulers.llm. This is a bug.")


def examine(version: ModelVersion) -> ServePlan:
    """How the version would be served, if its files go together.

    Raises LoadFailed naming the version, and the file, tensor, field or parameter that is wrong.
    """
    from backends.llm.tokens.tokeniser import read_tokeniser  # no gateway is to load the library

    try:
        plan = plan_serving(version)
        headers = read_headers(version.path)
        if isinstance(plan.model, DecoderConfig):
            hold_against(headers, expected_tensors(plan.model, headers))
        read_tokeniser(version.path)
        read_template(version.path)
    except (BadCheckpoint, UnknownFamily, NoRoom) as error:
        refuse(version, str(error))
    return plan


def _refuse_unserved(version: ModelVersion) -> None:
    """What a config may say of other models and not of these."""
    written = version.config
    if written.max_batch_size > 0:
        refuse(
            version,
            f"max_batch_size is {written.max_batch_size}; a language model batches tokens, not "
            "requests: leave it out, and set the parameter max_running instead",
        )
    for field in ("sequence_batching", "ensemble_scheduling", "dynamic_batching"):
        if written.HasField(field):
            refuse(version, f"{field} does nothing for a language model; leave it out")
    if written.response_cache.enable:
        refuse(
            version, "response_cache is not for language models, which cache prefixes; leave it out"
        )
    if len(written.model_warmup):
        refuse(version, "model_warmup is not for language models, which warm themselves")


def _refuse_gpu(version: ModelVersion) -> None:
    """Of an encoder."""
    for group in version.config.instance_group:
        if group.kind == group.KIND_GPU or group.gpus:
            refuse(version, "instance_group asks for a GPU; encoders run on KIND_CPU so far")


def _complete_tensors(
    version: ModelVersion, tensors: Any, kind: str, known: Sequence[StandardTensor]
) -> None:
    """Have exactly the known ones; what is written must agree with them."""
    by_name = {one.name: one for one in known}
    for tensor in tensors:
        wanted = by_name.get(tensor.name)
        if wanted is None:
            refuse(version, f"there is no {kind} '{tensor.name}'; it has {', '.join(by_name)}")
        typed = tensor.data_type in (pb.TYPE_INVALID, wanted.data_type)
        if not typed or tuple(tensor.dims) not in ((), wanted.dims):
            refuse(
                version,
                f"{kind} '{tensor.name}' must be {pb.DataType.Name(wanted.data_type)} with dims "
                f"{list(wanted.dims)}; or leave it out",
            )
    del tensors[:]
    for one in known:
        tensor = tensors.add(name=one.name, data_type=one.data_type, dims=one.dims)
        if one.optional:
            tensor.optional = True
