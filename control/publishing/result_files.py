"""What a job has left in its output folder, as files of a model's next snapshot. Pure."""

import re
from collections.abc import Collection, Sequence

from control.imports.plan import SnapshotPlan
from repository.folders.walk import CONFIG_NAME
from repository.snapshots.digest import FileEntry
from repository.sources.errors import BadLayout

RESULT = "1/"
"""The folder of the version's files in a job's output."""

_NAME = re.compile(r'^name:\s*"(?:[^"\\\n]|\\.)*"[ \t]*$', re.MULTILINE)


def result_plan(
    paths: Collection[str], previous: Sequence[FileEntry], highest: int
) -> SnapshotPlan:
    """The files of `1/` become the version after `highest`, beside what the model has.

    A model that is deployed (`previous` are its files) keeps its config and all else beside its
    versions; a new one takes them from the output. Raises BadLayout.
    """
    number = highest + 1
    version = {f"{number}/{path.removeprefix(RESULT)}": path for path in paths if _is_in(path)}
    beside = [path for path in paths if not _is_in(path)]
    if not version:
        raise BadLayout(f"the job has left no file in the folder '{RESULT}' of its result")
    if strange := sorted(path for path in beside if "/" in path and path[0].isdigit()):
        raise BadLayout(
            f"the job has left '{strange[0]}'; its result is one version, in '{RESULT}'"
        )
    if not previous and CONFIG_NAME not in beside:
        raise BadLayout(f"the job has left no {CONFIG_NAME} with its result")
    placed = version if previous else version | {path: path for path in beside}
    return SnapshotPlan(placed, tuple(previous), (number,))


def named_config(text: str, model: str) -> str:
    """The config with `model` as its name: a tool may have left its source's."""
    line = f'name: "{_escaped(model)}"'
    renamed, found = _NAME.subn(lambda _: line, text, count=1)
    return renamed if found else f"{line}\n{text}"


def _is_in(path: str) -> bool:
    return path.startswith(RESULT)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
