"""The code that serving a version would run, by its config and by the content of its files.

Judged before anything is loaded, and never by a file's name: a config may call a python model
`labels.txt`. Reads files, executes none.
"""

from backends.artefact import artefact_path
from backends.environments.declared import declared_environment
from backends.pytorch.archive import brings_code
from repository.code_use import ENVIRONMENT, NATIVE, CodeUse
from repository.model import ModelVersion


def code_uses(version: ModelVersion, backend: str) -> tuple[CodeUse, ...]:
    """All code that `backend` would run for `version`; empty when it only computes.

    Raises LoadFailed where the file that the backend reads is missing, OSError.
    """
    libraries = version.config.model_operations.op_library_filename
    uses = [CodeUse(NATIVE, name) for name in libraries]
    if backend == "python":
        uses.append(CodeUse("python", version.config.default_model_filename or "model.py"))
        declared = declared_environment(version)
        if declared is not None:
            uses.append(CodeUse(ENVIRONMENT, declared.named_in(version)))
    elif backend == "pytorch":
        path = artefact_path(version, "model.pt2", "model.pt")
        if needed := brings_code(path):
            uses.append(CodeUse(needed, path.name))
    return tuple(uses)
