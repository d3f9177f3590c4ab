"""A model's config under other settings. Pure."""

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from jobs.tools.profile.space import TrialSettings

THREADS = "intra_op_thread_count"
_NOT_MEASURED = ("version_policy", "model_warmup", "response_cache")
"""Fields left out of what is measured: other versions, files that are not there, stored answers."""


def measured(config: pb.ModelConfig) -> pb.ModelConfig:
    """The config in force as it is measured."""
    plain = pb.ModelConfig()
    plain.CopyFrom(config)
    for field in _NOT_MEASURED:
        plain.ClearField(field)
    for output in plain.output:
        output.ClearField("label_filename")
    return plain


def changed(config: pb.ModelConfig, settings: TrialSettings) -> pb.ModelConfig:
    """The config with these settings in it."""
    made = pb.ModelConfig()
    made.CopyFrom(config)
    made.MergeFrom(_fields(settings, clear=made))
    return made


def as_text(settings: TrialSettings) -> str:
    """The fields of config.pbtxt that set them."""
    return text_format.MessageToString(_fields(settings, clear=None))


def _fields(settings: TrialSettings, clear: pb.ModelConfig | None) -> pb.ModelConfig:
    found = pb.ModelConfig()
    found.instance_group.add(count=settings.instances, kind=pb.ModelInstanceGroup.KIND_CPU)
    if settings.batch:
        found.max_batch_size = settings.batch
    if settings.batch > 1:
        found.dynamic_batching.max_queue_delay_microseconds = settings.delay_us
    if settings.threads:
        found.parameters[THREADS].string_value = str(settings.threads)
    if clear is not None:
        for field in ("instance_group", "dynamic_batching"):
            clear.ClearField(field)
    return found
