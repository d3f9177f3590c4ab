"""Does a load request make code run that its model's folder does not run by itself?

Whoever may ask for a load is a client of the inference port. The folder's owner has decided what
runs in it; a config or files that come with a request decide nothing, unless the server's operator
lets them (`--allow-code-in-load-requests`).
"""

import asyncio
from collections.abc import Callable, Iterable

from backends.errors import LoadFailed
from repository.code_use import CodeUse
from repository.errors import BadModel
from repository.model import ModelFolder, ModelVersion
from server.fleet.checks.check import Checker

CodeOf = Callable[[ModelVersion], Iterable[CodeUse]]
"""The code that serving a version would run; blocks, and raises LoadFailed where nobody knows."""


def asked_of(checker: Checker) -> CodeOf:
    """The checker's answers, for other threads than that of the running loop."""
    loop = asyncio.get_running_loop()

    def code_of(version: ModelVersion) -> Iterable[CodeUse]:
        return asyncio.run_coroutine_threadsafe(checker.code_uses(version), loop).result()

    return code_of


def refuse_new_code(override: ModelFolder, own: ModelFolder | None, code_of: CodeOf) -> None:
    """Raise BadModel when a version of `override` would run code that no version of `own` does.

    `own`: the folder as its owner wrote it, None when the request brought all files itself, or when
    its config cannot be read. Blocks.
    """
    try:
        uses = _uses(override.versions, code_of)
        own_uses = _uses(own.versions, code_of) if own is not None and uses else frozenset()
    except LoadFailed as error:
        raise BadModel(f"the code it would run cannot be determined: {error}") from error
    new = sorted(uses - own_uses)
    if new:
        file = new[0].file
        raise BadModel(
            f"the load request makes '{file}' run as code (format {new[0].format}), which its "
            "folder in the repository does not; put the model there, or start the server with "
            "--allow-code-in-load-requests"
        )


def _uses(versions: Iterable[ModelVersion], code_of: CodeOf) -> frozenset[CodeUse]:
    return frozenset(use for version in versions for use in code_of(version))
