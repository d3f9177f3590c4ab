"""Why a server cannot start with the folders it is given, found before it starts."""

import os

from repository.folders.walk import is_model_folder
from server.settings.table import Settings


def folders_problem(settings: Settings) -> str:
    """A sentence about the first folder that will not do; "" where all will."""
    return _repositories_problem(settings) or _state_problem(settings)


def _repositories_problem(settings: Settings) -> str:
    for folder in settings.model_repository:
        subject = f"the model repository '{folder}' ({settings.source('model_repository')})"
        if not folder.is_dir():
            if settings.repository_may_be_missing:
                continue
            return (
                f"{subject} is not a folder; create {folder.absolute()} or name another with "
                "--model-repository"
            )
        if is_model_folder(folder):
            return (
                f"{subject} is itself a model, and a repository is a folder of such folders; give "
                f"--model-repository {folder.absolute().parent}"
            )
    return ""


def _state_problem(settings: Settings) -> str:
    folder = settings.state_dir
    subject = f"the state folder '{folder}' ({settings.source('state_dir')})"
    nearest = next((one for one in (folder, *folder.absolute().parents) if one.exists()), folder)
    if not nearest.is_dir():
        return f"{subject} cannot be made: {nearest} is a file; name another with --state-dir"
    if not os.access(nearest, os.W_OK | os.X_OK):
        return (
            f"{subject} cannot be written: {nearest} is another user's; name one of yours with "
            "--state-dir"
        )
    return ""
