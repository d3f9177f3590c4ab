"""A sequence that begins anew while an earlier copy of it lives elsewhere: the copy is over.

Asked by `server.dataplane` after a request with START was taken.
"""

from collections.abc import Iterable

from schedulers.sequences.batcher import SequenceBatcher
from server.served_version import Models, ServedVersion


def first(holders: Iterable[ServedVersion]) -> ServedVersion | None:
    """The one that a sequence goes on with."""
    return next(iter(holders), None)


def supersede_copies(
    models: Models, begun: ServedVersion, model: str, version: int | None, key: int | str
) -> None:
    """End the copies of a sequence that `begun` has begun anew. Without a version in the request
    (None) only those on versions that drain: on another that serves, the id may be that of a client
    who names this version.
    """
    for served in models.holders_of(model, version, key):
        batcher = served.scheduler
        if served is begun or not isinstance(batcher, SequenceBatcher):
            continue
        if version is not None or not batcher.accepting:
            batcher.supersede(key, model)
