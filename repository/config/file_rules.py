"""Rules for the files that a config names: inside the model, and nothing hidden. Pure."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from repository.config.finding_report import FindingReport
from repository.config.tensor_rules import leads_out
from repository.model import ModelConfig


def names_hidden(name: str) -> bool:
    """Whether a path goes through an entry whose name begins with a dot: such are ignored wherever
    they lie, and do not come back through a config."""
    return any(part.startswith(".") and part != ".." for part in PurePosixPath(name).parts)


def named_files(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """Every file that a config names, with the field that does."""
    yield "default_model_filename", config.default_model_filename
    for name in config.cc_model_filenames.values():
        yield "cc_model_filenames", name
    for index, name in enumerate(config.model_operations.op_library_filename):
        yield f"model_operations.op_library_filename[{index}]", name
    for index, output in enumerate(config.output):
        yield f"output[{index}].label_filename", output.label_filename
    for index, sample in enumerate(config.model_warmup):
        for tensor in sample.inputs.values():
            yield f"model_warmup[{index}].inputs", tensor.input_data_file
    for index, state in enumerate(config.sequence_batching.state):
        for initial in state.initial_state:
            yield f"sequence_batching.state[{index}].initial_state", initial.data_file


def _hidden(config: ModelConfig, report: FindingReport) -> None:
    for path, name in named_files(config):
        if names_hidden(name):
            accepted = "must not name a hidden file (one that begins with a dot)"
            report.add(path, "E119", f"{path} {accepted}, got '{name}'")


def _libraries(config: ModelConfig, report: FindingReport) -> None:
    for index, name in enumerate(config.model_operations.op_library_filename):
        if leads_out(name):
            path = f"model_operations.op_library_filename[{index}]"
            report.add(path, "E117", f"{path} must stay inside the model's folder, got '{name}'")


FILE_RULES = (_hidden, _libraries)
