"""This server with the random checkpoint in every precision, each a model of its own."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers import modelyard
from benchmarks.peers.seam import Peer

VARIANTS: dict[str, dict[str, str]] = {
    "int8": {"precision": "int8"},
    "int4": {"precision": "int4"},
    "bf16": {"precision": "bfloat16"},
    "torch-int8": {"precision": "int8", "kernels": "torch"},
    "torch-bf16": {"precision": "bfloat16", "kernels": "torch"},
}
BOUNDED = "bounded"
"""The default precision with a short queue, so that an overload is refused within seconds."""
_BOUNDED = {"precision": "int8", "max_running": "32", "max_waiting": "32"}


@contextmanager
def started(checkpoint: Path, cache: Path, variants: Sequence[str], threads: int) -> Iterator[Peer]:
    """`modelyard serve` on these variants, ready. Raises PeerFailed."""
    repository = cache / "llm-repository"
    shutil.rmtree(repository, ignore_errors=True)
    for name in variants:
        parameters = _BOUNDED if name == BOUNDED else VARIANTS[name]
        _write(repository / name, checkpoint, {**parameters, "threads": str(threads)})
    with modelyard.started(repository, cache) as peer:
        yield peer


def _write(model: Path, checkpoint: Path, parameters: dict[str, str]) -> None:
    """The checkpoint's files are linked: one copy on the disk, and in the page cache."""
    version = model / "1"
    version.mkdir(parents=True)
    for each in checkpoint.iterdir():
        os.link(each, version / each.name)
    lines = [f'name: "{model.name}"', 'backend: "llm"']
    lines += [
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'
        for key, value in parameters.items()
    ]
    (model / "config.pbtxt").write_text("\n".join(lines) + "\n")
