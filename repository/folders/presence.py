"""Whether a repository that shows none of its models any more is to be believed. Pure.

An unmounted disk leaves an empty folder, or none, and looks like somebody who removed every model
at once.
"""

from collections.abc import Mapping
from typing import NamedTuple

from repository.folders.read import FolderState

FEW = 1
"""So many models may go at once; somebody who removes more of them one by one is believed too,
because the scans between see the others."""

FolderKey = tuple[int, str]
"""Which root, counted from 0, and the model's name: one name may stand in two roots."""

States = Mapping[FolderKey, FolderState]


class Root(NamedTuple):
    """One repository as a scan saw it. `place`: device and inode of the folder, None without one;
    `problem`: why it could not be read."""

    path: str
    place: tuple[int, int] | None = None
    problem: str = ""


def missing(
    before: States, before_roots: Mapping[int, Root], states: States, roots: Mapping[int, Root]
) -> dict[int, str]:
    """The repositories whose models stay as in `before`, each with the reason."""
    shown = {index for index, _ in states}
    found = {}
    for index, root in roots.items():
        count = sum(key[0] == index for key in before)
        if root.problem:
            found[index] = f"{root.problem}; what was loaded from it keeps serving"
        elif index not in shown and (count > FEW or (count and _moved(before_roots, index, root))):
            found[index] = (
                f"model repository '{root.path}' has turned empty at once, with {count} models "
                "gone; is it mounted? What was loaded from it keeps serving; put a model there, "
                "or start with --allow-empty-repository"
            )
    return found


def _moved(before: Mapping[int, Root], index: int, root: Root) -> bool:
    """Another folder stands where the repository was."""
    old = before.get(index)
    return old is not None and old.place is not None and old.place != root.place


def kept(before: States, states: States, lost: Mapping[int, str]) -> States:
    """`states` with the models of lost repositories as they were before."""
    return {
        **{key: state for key, state in before.items() if key[0] in lost},
        **{key: state for key, state in states.items() if key[0] not in lost},
    }
