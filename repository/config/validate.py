"""The rules a config must keep beyond its schema; the tables at the end of each file list them all.

Pure: data in, findings out. A config as written may leave to the artefact what the artefact knows
(types, dims, whether there is a batch dimension); `repository.config.normalise.validate_complete`
asks for the rest once it has been completed.
"""

from collections.abc import Iterator
from typing import Any

from repository.config.body_rules import BODY_RULES
from repository.config.bound_rules import BOUND_RULES
from repository.config.field_rules import FIELD_RULES
from repository.config.file_rules import FILE_RULES
from repository.config.finding_report import FindingReport
from repository.config.positions import Positions
from repository.config.ragged_rules import RAGGED_RULES
from repository.config.scheduling_rules import SCHEDULING_RULES
from repository.config.step_rules import STEP_RULES
from repository.config.tensor_rules import TENSOR_RULES, leads_out
from repository.findings import Finding
from repository.model import ModelConfig

LONGEST_GROUP_NAME = 255


def validate(
    config: ModelConfig, positions: Positions, folder: str = "", complete: bool = False
) -> list[Finding]:
    """Every rule that `config` breaks, in the order of the tables.

    `folder` is the name of the model's folder, "" when it is not known. `complete` says that
    nobody will fill anything in any more, so that an absent max_batch_size means 0.
    """
    report = FindingReport(positions, complete)
    if folder and config.name and config.name != folder:
        accepted = f"must be the folder's name '{folder}' or absent"
        report.add("name", "E110", f"name {accepted}, got '{config.name}'")
    rules = (
        *GENERAL_RULES,
        *FIELD_RULES,
        *FILE_RULES,
        *TENSOR_RULES,
        *RAGGED_RULES,
        *SCHEDULING_RULES,
        *BOUND_RULES,
        *STEP_RULES,
        *BODY_RULES,
    )
    for rule in rules:
        rule(config, report)
    return report.findings


def _known_enums(config: ModelConfig, report: FindingReport) -> None:
    for path, field, number in _enums(config, ""):
        if number not in field.enum_type.values_by_number:
            names = ", ".join(field.enum_type.values_by_name)
            report.add(path, "E104", f"{path} has no value {number}; allowed: {names}")


def _enums(message: Any, prefix: str) -> Iterator[tuple[str, Any, int]]:
    for field, value in message.ListFields():
        path = f"{prefix}{field.name}"
        entry = field.message_type is not None and field.message_type.GetOptions().map_entry
        if field.enum_type is not None and not field.is_repeated:
            yield path, field, value
        elif field.message_type is None:
            continue
        elif entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                for key in value:
                    yield from _enums(value[key], f"{path}[{key}].")
        elif field.is_repeated:
            for index, item in enumerate(value):
                yield from _enums(item, f"{path}[{index}].")
        else:
            yield from _enums(value, f"{path}.")


def _max_batch_size(config: ModelConfig, report: FindingReport) -> None:
    if config.max_batch_size < 0:
        problem = f"max_batch_size must be ≥ 0, got {config.max_batch_size}"
        report.add("max_batch_size", "E103", problem)


def _version_policy(config: ModelConfig, report: FindingReport) -> None:
    policy = config.version_policy
    if policy.WhichOneof("policy_choice") != "specific":
        return
    path = "version_policy.specific"
    if not policy.specific.versions:
        report.add(path, "E131", f"{path} must list at least one version")
    for index, number in enumerate(policy.specific.versions):
        if number < 1:
            where = f"{path}.versions[{index}]"
            report.add(where, "E103", f"{where} must be ≥ 1, got {number}")


def _file_names(config: ModelConfig, report: FindingReport) -> None:
    names = [("default_model_filename", config.default_model_filename)]
    names += [("cc_model_filenames", name) for name in config.cc_model_filenames.values()]
    for path, name in names:
        if leads_out(name):
            problem = f"{path} must stay inside the version's folder, got '{name}'"
            report.add(path, "E117", problem)


def _instance_group(config: ModelConfig, report: FindingReport) -> None:
    for index, group in enumerate(config.instance_group):
        path = f"instance_group[{index}]"
        if group.count < 0:
            rule = "must be ≥ 1, or absent for the default"
            report.add(f"{path}.count", "E130", f"{path}.count {rule}, got {group.count}")
        if len(group.name) > LONGEST_GROUP_NAME or not group.name.isprintable():
            rule = f"must be printable text of at most {LONGEST_GROUP_NAME} characters"
            report.add(f"{path}.name", "E130", f"{path}.name {rule}: it names processes")
        if group.gpus and group.kind in (group.KIND_CPU, group.KIND_MODEL):
            kind = group.Kind.Name(group.kind)
            accepted = "leave gpus out, or use KIND_GPU"
            report.add(f"{path}.gpus", "E130", f"{path} is {kind} and has gpus; {accepted}")
        for place, gpu in enumerate(group.gpus):
            if gpu < 0:
                where = f"{path}.gpus[{place}]"
                report.add(where, "E130", f"{where} must be ≥ 0, got {gpu}")


def _warmup(config: ModelConfig, report: FindingReport) -> None:
    most = max(1, config.max_batch_size)
    for index, sample in enumerate(config.model_warmup):
        path = f"model_warmup[{index}]"
        if sample.batch_size > most and report.batch_size_known(config):
            rule = f"must be ≤ max_batch_size {config.max_batch_size}"
            report.add(
                f"{path}.batch_size", "E160", f"{path}.batch_size {rule}, got {sample.batch_size}"
            )
        for name, tensor in sample.inputs.items():
            where = report.positions.keyed(f"{path}.inputs", name)
            _warmup_input(f"{path} input '{name}'", where, tensor, report)


def _warmup_input(shown: str, where: str, tensor: Any, report: FindingReport) -> None:
    if tensor.data_type == 0:
        report.add(where, "E160", f"{shown} has no data_type")
    if tensor.WhichOneof("input_data_type") is None:
        accepted = "zero_data, random_data or input_data_file"
        report.add(where, "E160", f"{shown} has no data; give one of {accepted}")
    if leads_out(tensor.input_data_file):
        problem = f"{shown} must name a file in the model's warmup folder"
        report.add(where, "E117", f"{problem}, got '{tensor.input_data_file}'")


GENERAL_RULES = (
    _known_enums,
    _max_batch_size,
    _version_policy,
    _file_names,
    _instance_group,
    _warmup,
)
