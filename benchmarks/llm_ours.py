"""This server with the random checkpoint in every precision, each a model of its own."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.llm_figures import Heard
from benchmarks.llm_load import send
from benchmarks.llm_workloads import Ask
from benchmarks.peers import modelyard
from benchmarks.peers.seam import Peer
from benchmarks.process import PeerFailed

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
    repository = write(cache / "llm-repository", checkpoint, variants, threads)
    with modelyard.started(repository, cache) as peer:
        yield peer


def write(repository: Path, checkpoint: Path, variants: Sequence[str], threads: int) -> Path:
    """Write these variants in place of what `repository` held, and return it."""
    shutil.rmtree(repository, ignore_errors=True)
    for name in variants:
        parameters = _BOUNDED if name == BOUNDED else VARIANTS[name]
        write_model(repository / name, checkpoint, {**parameters, "threads": str(threads)})
    return repository


def ask(ours: Peer, model: str, asks: Sequence[Ask]) -> tuple[list[Heard], float]:
    """Send a workload; what was heard of each, and seconds until the last had ended.

    Raises PeerFailed where one was refused or cut short.
    """
    heard, wall_s = send(ours.rest, model, asks)
    if wrong := [one.status for one in heard if one.status != 200]:
        raise PeerFailed(f"modelyard {model}: statuses {wrong[:5]} (0: an answer cut short)")
    return heard, wall_s


def write_model(
    model: Path, checkpoint: Path, parameters: dict[str, str], kind: str = "KIND_CPU"
) -> None:
    """The checkpoint's files are linked: one copy on the disk, and in the page cache."""
    version = model / "1"
    version.mkdir(parents=True)
    for each in checkpoint.iterdir():
        link(each, version / each.name)
    lines = [f'name: "{model.name}"', 'backend: "llm"', f"instance_group {{ kind: {kind} }}"]
    lines += [
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'
        for key, value in parameters.items()
    ]
    (model / "config.pbtxt").write_text("\n".join(lines) + "\n")


def link(source: Path, target: Path) -> None:
    """Or copy, where they lie on different disks."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
