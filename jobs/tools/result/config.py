"""The config.pbtxt of a job's source and of its result."""

from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from jobs.tools.work import refuse

NAME = "config.pbtxt"
_OF_ONE_RUNTIME = ("parameters", "optimization", "metric_tags")


def read_config(source: Path) -> pb.ModelConfig:
    """The config in force beside the source's files. Refuses what is no config."""
    try:
        text = (source / NAME).read_text()
        config: pb.ModelConfig = text_format.Parse(text, pb.ModelConfig())
    except FileNotFoundError:
        refuse(f"the source has no {NAME}")
    except (UnicodeDecodeError, text_format.ParseError) as error:
        refuse(f"the source's {NAME} cannot be read: {error}")
    return config


def result_config(
    source: pb.ModelConfig, model: str, backend: str, *, same_runtime: bool = True
) -> pb.ModelConfig:
    """The source's config for a version that `backend` reads under its usual file name.

    Parameters and optimisations of another runtime are left out unless it stays the same.
    """
    config = pb.ModelConfig()
    config.CopyFrom(source)
    config.name, config.backend = model, backend
    for field in ("platform", "default_model_filename", "cc_model_filenames"):
        config.ClearField(field)
    if not same_runtime:
        for field in _OF_ONE_RUNTIME:
            config.ClearField(field)
    return config


def write_config(output: Path, config: pb.ModelConfig) -> None:
    """Write the result's config.pbtxt."""
    (output / NAME).write_text(text_format.MessageToString(config))


def version_folder(output: Path) -> Path:
    """The folder of the result's files, made if it is not there."""
    folder = output / "1"
    folder.mkdir(exist_ok=True)
    return folder
