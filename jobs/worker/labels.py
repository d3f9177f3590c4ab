"""Label files, which lie beside versions: read with a source, carried along to a result."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from google.protobuf import text_format

from repository.config.tensor_rules import leads_out
from repository.model import ModelConfig


def label_files(config: str) -> Iterator[str]:
    """The `label_filename` of each output of a config as text that stays inside the model's
    folder; nothing of a text that is no config."""
    try:
        parsed = text_format.Parse(config, ModelConfig())
    except text_format.ParseError:
        return
    for output in parsed.output:
        if output.label_filename and not leads_out(output.label_filename):
            yield output.label_filename


def carry_labels(config: str, source: Path, target: Path) -> None:
    """Copy the label files that `config` names from one model's folder to another's, where they
    are there, and nothing of the name, or of its first folder, is here. So nothing is written
    through a link that a job's process has left. Raises OSError."""
    for name in label_files(config):
        there = source / name
        if there.is_file() and not os.path.lexists(target / PurePosixPath(name).parts[0]):
            here = target / name
            here.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(there, here)
