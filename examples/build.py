"""Builds the example model repository: `python -m examples.build --into DIR`.

`examples.stories`, a language model, takes minutes to train and is not among them; see there.

A second run does nothing: `DIR/.built/NAME` holds the digest of the sources an example was built
from, and torch is imported only for an example whose sources changed. Every folder is finished in
`DIR/.built` and renamed into place, so that a server watching DIR never sees half a model.
"""

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
SIDE_FILES = ("config.pbtxt", "labels.txt")
"""What is copied beside the versions where an example has it."""


class Example(NamedTuple):
    """One model to build.

    `examples.NAME.build` has `build(version, folder)`, which writes one version's files into an
    existing empty folder. `borrows` are other examples whose code it uses; `note` is told beside
    its name. `parts` are further models, which an ensemble needs: `build_part(PART, version,
    folder)` writes theirs, and `examples/NAME/PART.pbtxt` is their config.
    """

    name: str
    versions: tuple[int, ...]
    borrows: tuple[str, ...] = ()
    note: str = ""
    parts: tuple[str, ...] = ()


EXAMPLES = (
    Example("identity", (1,)),
    Example("simple", (1,)),
    Example("shout", (1,)),
    Example("repeat", (1,)),
    Example("narrator", (1,)),
    Example("running_sum", (1,)),
    Example("ragged_embedding", (1,)),
    Example("gru_text", (1,), note=": trains a small network, some seconds"),
    Example("digits", (1, 2), note=": trains two networks, some seconds"),
    Example("digits_torch", (1,), borrows=("digits",), note=": exports the better one"),
    Example("sure_digits", (1,), parts=("digits_certainty",)),
    Example(
        "photo_labels",
        (1,),
        note=": trains a network, some seconds",
        parts=("photo_pixels", "photo_network", "photo_names"),
    ),
)


def main() -> None:
    """Build what is missing or stale, saying what was built."""
    parser = argparse.ArgumentParser(prog="python -m examples.build", description=__doc__)
    parser.add_argument("--into", type=Path, required=True, help="the model repository to fill")
    into = parser.parse_args().into
    built = build_all(into, lambda line: print(line, flush=True))
    print(f"built {', '.join(built)}" if built else "examples are up to date")


def build_all(repository: Path, tell: Callable[[str], None] = lambda _: None) -> list[str]:
    """Bring every example in `repository` up to date; return the names of those built. `tell` gets
    a line before each."""
    stale = [example for example in EXAMPLES if not _is_fresh(example, repository)]
    for number, example in enumerate(stale, 1):
        tell(f"building the example {example.name} ({number} of {len(stale)}){example.note}")
        _build(example, repository)
    return [example.name for example in stale]


def build_one(example: Example, repository: Path) -> bool:
    """Bring one example in `repository` up to date; whether there was anything to do."""
    if _is_fresh(example, repository):
        return False
    _build(example, repository)
    return True


def digest_of(example: Example) -> str:
    """The digest of everything an example is built from (not of its README or its caller)."""
    digest = sha256(repr(example).encode())
    for name in (example.name, *example.borrows):
        for path in sorted((HERE / name).glob("*")):
            if path.suffix in {".py", ".pbtxt", ".txt"} and path.name != "call.py":
                digest.update(f"{name}/{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _is_fresh(example: Example, repository: Path) -> bool:
    stamp = repository / ".built" / example.name
    models = (example.name, *example.parts)
    versions = (repository / name / str(one) for name in models for one in example.versions)
    if not stamp.is_file() or not all(version.is_dir() for version in versions):
        return False
    return stamp.read_text() == digest_of(example)


def _build(example: Example, repository: Path) -> None:
    desk = repository / ".built"
    desk.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{example.name}-", dir=desk) as temporary:
        _make(example, Path(temporary))
        for name in (*example.parts, example.name):
            made = Path(temporary) / name
            _publish(made, repository / name, Path(temporary) / f"old-{name}")
    (desk / example.name).write_text(digest_of(example))


def _make(example: Example, desk: Path) -> None:
    code = import_module(f"examples.{example.name}.build")
    folder = desk / example.name
    for number in example.versions:
        version = folder / str(number)
        version.mkdir(parents=True)
        code.build(number, version)
        for part in example.parts:
            version = desk / part / str(number)
            version.mkdir(parents=True)
            code.build_part(part, number, version)
    for part in example.parts:
        shutil.copy(HERE / example.name / f"{part}.pbtxt", desk / part / "config.pbtxt")
    for name in SIDE_FILES:
        if (HERE / example.name / name).is_file():
            shutil.copy(HERE / example.name / name, folder / name)


def _publish(made: Path, model: Path, old: Path) -> None:
    """Rename a finished model into place, whole if it is new, else entry by entry.

    Versions somebody else put into an existing model folder stay.
    """
    if not model.exists():
        os.rename(made, model)
        return
    old.mkdir()
    for entry in sorted(made.iterdir()):
        if entry.is_dir() and (model / entry.name).exists():
            os.rename(model / entry.name, old / entry.name)
        os.replace(entry, model / entry.name)


if __name__ == "__main__":
    main()
