"""Where a version's files come from: from the operator's own folders, or stored by the server.

What the server stores (pushed, imported, snapshotted, sent with a load request) nobody changes;
in the operator's folders anything may be written at any time.
"""

from backends.artefact import parameter
from backends.errors import LoadFailed
from repository.model import ModelVersion
from server.settings.table import Settings


def is_operators(version: ModelVersion, settings: Settings) -> bool:
    """Whether it lies in a model repository folder rather than in the state or the store."""
    roots = dict.fromkeys((settings.state_dir, settings.store_folder), False)
    roots |= dict.fromkeys(settings.model_repository, True)
    folder = version.folder.absolute()
    around = {root.absolute(): own for root, own in roots.items()}
    inside = [root for root in around if folder.is_relative_to(root)]
    return not inside or around[max(inside, key=lambda root: len(root.parts))]


def refuse_mapped_weights(version: ModelVersion, settings: Settings) -> None:
    """Raises LoadFailed for weights to be used where they are mapped, from a file that may be
    written to: a page that is cut off under the mapping ends the whole process."""
    if parameter(version, "mapped_weights") == "1" and is_operators(version, settings):
        raise LoadFailed(
            f"model '{version.name}' version {version.number}: parameter mapped_weights is '1', "
            f"and {version.path} is a folder in which files may be overwritten, which would end "
            "the server; leave the parameter out, or push or import the model: the server's store "
            "does not change"
        )
