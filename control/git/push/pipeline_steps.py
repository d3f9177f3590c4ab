"""What a pushed model's jobs.json says: that its steps can be taken, and by this pusher."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from control.access.scopes import Action, Principal, allows, why_not
from control.git.push.file_formats import allowing
from control.json_positions import line_and_column, offset_of
from control.pipelines.steps import FILE, LARGEST_BYTES, BadSteps, JobStep, Step, declared_steps
from repository.files.plain_files import open_plain
from repository.findings import Finding

CODE, RIGHTS_CODE = "E472", "E473"

_CODE_FORMAT = "python"
_FILES = ("data", "recipe", "held_out", "calibration")
"""Fields that may name a file of the model."""


@dataclass(frozen=True, slots=True)
class DeclaredSteps:
    """`documents` as the file has them, `steps` as they are understood; empty without a file."""

    documents: tuple[Mapping[str, Any], ...] = ()
    steps: tuple[Step, ...] = ()

    @property
    def trusted(self) -> bool:
        """Whether a step asks to trust files that can run code."""
        return any(isinstance(one, JobStep) and one.trusted for one in self.steps)


NO_STEPS = DeclaredSteps()


def model_steps(
    folder: Path, model: str, formats: Sequence[str], repository: str
) -> tuple[DeclaredSteps, list[Finding]]:
    """The steps of the model in `folder`, which its owner calls `model`, and what is wrong with
    them; blocks. `formats`: those that the repository takes."""
    file = folder / FILE
    try:
        with open(open_plain(file), "rb") as opened:
            raw = opened.read(LARGEST_BYTES + 1)
    except FileNotFoundError:
        return NO_STEPS, []
    except OSError as error:
        return NO_STEPS, [Finding(file, 0, 0, CODE, f"cannot be read: {error}")]
    try:
        documents, steps = declared_steps(raw, model)
        _check_files(folder, documents)
    except BadSteps as error:
        return NO_STEPS, [Finding(file, *_position(raw, error), CODE, str(error))]
    declared = DeclaredSteps(tuple(documents), steps)
    return declared, list(_untrusted(file, raw, declared, formats, repository))


def pusher_findings(publisher: Principal, declared: Mapping[str, DeclaredSteps]) -> list[Finding]:
    """Steps that their pusher may not have taken, by model. Jobs are asked for by operators."""
    found = []
    for model, one in sorted(declared.items()):
        action = Action.ADMIN if one.trusted else Action.OPERATE
        if one.steps and not allows(publisher, action):
            words = f"its steps are jobs, which an operator asks for: {why_not(publisher, action)}"
            if one.trusted:
                words = (
                    f"a step says 'trusted', as administrators may: {why_not(publisher, action)}"
                )
            found.append(Finding(Path(model) / FILE, 0, 0, RIGHTS_CODE, words))
    return found


def _check_files(folder: Path, documents: Sequence[Mapping[str, Any]]) -> None:
    """Raises BadSteps for a file of the model that is not there."""
    for number, document in enumerate(documents):
        for name in _FILES:
            path = document.get(name)
            if not isinstance(path, str) or not path or os.path.isabs(path):
                continue
            if not _is_there(folder, path):
                raise BadSteps(
                    f"step {number + 1}: {name} is '{path:.80}', which is neither in the model's "
                    "folder nor in a version's; push it with the model",
                    f"$.steps[{number}].{name}",
                )


def _is_there(folder: Path, path: str) -> bool:
    # Unlike Path.exists this raises nothing for names that no file can have.
    return any(os.path.exists(one / path) for one in (folder, *folder.glob("[0-9]*")))


def _untrusted(
    file: Path, raw: bytes, declared: DeclaredSteps, formats: Sequence[str], repository: str
) -> list[Finding]:
    if _CODE_FORMAT in formats:
        return []
    text = raw.decode("utf-8", "replace")
    return [
        Finding(
            file,
            *line_and_column(text, offset_of(text, f"$.steps[{number}]")),
            RIGHTS_CODE,
            f"step {number + 1} runs code that comes with the model; "
            f"{allowing(repository, _CODE_FORMAT)}",
        )
        for number, step in enumerate(declared.steps)
        if isinstance(step, JobStep) and step.runs_code
    ]


def _position(raw: bytes, error: BadSteps) -> tuple[int, int]:
    text = raw.decode("utf-8", "replace")
    if len(raw) > LARGEST_BYTES:
        return 0, 0
    if not error.path:
        return line_and_column(text, len(raw[: error.at].decode("utf-8", "replace")))
    return line_and_column(text, offset_of(text, error.path))
