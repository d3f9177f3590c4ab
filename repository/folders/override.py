"""A model under a config that did not come from its folder: a client sent it with a load request.

`server.overrides` calls this, on a thread.
"""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from repository.config.positions import Positions
from repository.config.read import LARGEST_BYTES
from repository.config.validate import validate
from repository.errors import BadModel, ConfigError
from repository.findings import reason
from repository.folders.read import FolderReader, FolderState
from repository.folders.snapshot import folder_with, model_folder
from repository.folders.walk import hidden
from repository.model import ModelConfig, ModelFolder
from repository.policy import no_version_reason, select

WHERE = Path("config")
"""How complaints name the config of a load request, which stands in no file."""

_NO_CONFIG = "E204"
"""Of a folder with neither config nor version: here only the version is missing."""

_LISTED = re.compile(r"\s*Available Fields\(except extensions\): \"\[(.*?)\]\"\.?", re.DOTALL)


def parse_json(text: str) -> ModelConfig:
    """The config in `text`, by protobuf's JSON rules: a number may be a string, and a field may
    be spelled max_batch_size or maxBatchSize.

    Raises ConfigError naming an unknown field, or a value that is not allowed, and what is.
    """
    if len(text) > LARGEST_BYTES:
        raise ConfigError(f"the config override is larger than {LARGEST_BYTES} bytes")
    if not text.lstrip().startswith("{"):
        raise ConfigError('the config override is not a JSON object, such as {"backend": "python"}')
    config = ModelConfig()
    try:
        json_format.Parse(text, config)
    except (json_format.ParseError, RecursionError) as error:
        alone = _with_lists(text)
        if alone is not None:
            return alone
        wording = _LISTED.sub(r" It may have: \1.", str(error))
        raise ConfigError(f"the config override cannot be read: {wording}") from error
    return config


def _with_lists(text: str) -> ModelConfig | None:
    """The config, where all that is wrong with it is that something stands alone in place of a
    list of one, which Triton's parser takes; else None."""
    config = ModelConfig()
    try:
        json_format.ParseDict(_listed(json.loads(text), ModelConfig.DESCRIPTOR), config)
    except (json_format.ParseError, ValueError, RecursionError):
        return None
    return config


def _listed(value: Any, kind: Descriptor) -> Any:
    """`value` of a message of this kind with a list for every repeated field."""
    if not isinstance(value, dict):
        return value
    made = {}
    for name, item in value.items():
        field = kind.fields_by_name.get(name) or kind.fields_by_camelcase_name.get(name)
        made[name] = item if field is None else _listed_field(item, field)
    return made


def _listed_field(value: Any, field: FieldDescriptor) -> Any:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        of = inner.fields_by_name["value"].message_type
        if of is None or not isinstance(value, dict):
            return value
        return {key: _listed(one, of) for key, one in value.items()}
    if not field.is_repeated:
        return _listed(value, inner) if inner is not None else value
    items = value if isinstance(value, list) else [value]
    return [_listed(one, inner) for one in items] if inner is not None else items


def overridden(
    roots: Sequence[Path], name: str, config: ModelConfig, sealed: bool = False
) -> ModelFolder:
    """The model `name` as its folder below one of `roots` stands now, but under `config`; blocks.
    `sealed`: the mtimes of its files are made from their content.

    Raises BadModel when no root or several have the model or no version is left to serve,
    ConfigError for a folder that cannot be read and for a config that breaks a rule.
    """
    state = _state(roots, name, sealed)
    problems = [problem for problem in state.problems if problem.code != _NO_CONFIG]
    if problems:
        raise ConfigError(reason(problems), problems)
    findings = validate(config, Positions(WHERE), name)
    if findings:
        raise ConfigError(reason(findings), findings)
    own_fields = ModelConfig()
    own_fields.CopyFrom(config)
    own_fields.name = name
    if not select(own_fields, [version.number for version in state.versions]):
        raise BadModel(no_version_reason(own_fields))
    return folder_with(state, own_fields)


def as_written(roots: Sequence[Path], name: str) -> ModelFolder | None:
    """The same folder under its own config; None when that cannot be read. Blocks."""
    try:
        return model_folder(_state(roots, name, sealed=False))
    except (BadModel, ConfigError):
        return None


def _state(roots: Sequence[Path], name: str, sealed: bool) -> FolderState:
    if hidden(name):
        raise BadModel(f"'{name}' cannot be a model's name: such files are passed over")
    reader = FolderReader(sealed=sealed)
    found = [
        state
        for root in roots
        if (root / name).is_dir()
        and (state := reader.model(root, root / name, name, os.path.realpath(root))) is not None
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise BadModel("no such model in the repository")
    places = ", ".join(str(root) for root in roots)
    raise BadModel(f"model '{name}' is in more than one repository: {places}; keep one of them")
