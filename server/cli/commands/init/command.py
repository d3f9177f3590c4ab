"""`modelyard init DIR --from ARTEFACT`: copy, complete the config, check, and say what to try."""

import argparse
import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path

from tritonclient.grpc import model_config_pb2 as pb

from backends.errors import LoadFailed
from backends.python.source import problems
from repository.config.type_names import NAMES
from repository.folders.walk import is_model_folder
from repository.formats import format_of
from repository.model import ModelConfig, ModelVersion
from server.cli.commands.client import ApiClient
from server.cli.commands.command import CommandFailed
from server.cli.commands.init.artefact_files import BadArtefact, copy, files_of
from server.cli.commands.init.config_text import config_text
from server.cli.commands.init.conversion import NEEDS, PICKLES, SCRIPT, ConversionFailed, convert
from server.cli.commands.init.python_tensors import add_tensors
from server.cli.commands.output import MessageOutput, Shown
from server.cli.commands.sample_request import curl, tensors_text
from server.cli.lint import find, parsing_checker
from server.settings.sources import read_settings
from server.settings.table import Settings, SettingsError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_BATCHES = 4
_TENSOR_TYPES = {name: number for number, name in NAMES.items()}


def init(given: argparse.Namespace, _: ApiClient) -> Shown:
    """Make the folder whole beside its place and move it there; on a failure nothing is left."""
    artefact, folder = _artefact(given), Path(given.DIR)
    _check_target(folder, artefact)
    if artefact.suffix.lower() in PICKLES and not given.convert:
        return _script(artefact, folder)
    try:
        with _building(folder) as building:
            config, guessed = _make(given, artefact, folder.absolute().name, building)
            os.rename(building, folder)
    except (BadArtefact, ConversionFailed, LoadFailed) as error:
        raise CommandFailed(str(error)) from None
    except OSError as error:
        raise CommandFailed(f"{folder} cannot be made: {error.strerror or error}") from None
    return _report(folder, artefact, config, guessed)


def _artefact(given: argparse.Namespace) -> Path:
    if given.artefact is None:
        raise CommandFailed(
            "from what? name a file or a Hugging Face folder, e.g. "
            f"`modelyard init {given.DIR} --from net.onnx`; docs/formats.md lists what is served"
        )
    artefact = Path(given.artefact)
    if not artefact.exists():
        raise CommandFailed(f"there is no {artefact}; --from names an existing file or folder")
    return artefact


def _check_target(folder: Path, artefact: Path) -> None:
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", artefact.absolute().stem).strip("._-") or "model"
    if folder.exists() or folder.is_symlink():
        is_repository = folder.is_dir() and not is_model_folder(folder)
        free = _free(folder if is_repository else folder.parent, stem)
        raise CommandFailed(
            f"{folder} is there already, and nothing is overwritten; name a new folder, e.g. "
            f"`modelyard init {free} --from {artefact}`"
        )
    name = folder.absolute().name
    if not _NAME.fullmatch(name) or name.isdecimal():
        raise CommandFailed(
            f"'{name}' cannot be a model's name; use letters, digits, _ . and -, and begin with a "
            f"letter, e.g. `modelyard init {folder.parent / stem} --from {artefact}`"
        )


def _free(repository: Path, stem: str) -> Path:
    """A folder of a model that is not there yet."""
    names = chain([stem], (f"{stem}_{number}" for number in count(2)))
    return next(repository / name for name in names if not (repository / name).exists())


def _script(artefact: Path, folder: Path) -> Shown:
    """What a pickle needs before it can be served; the script alone goes to stdout."""
    sentence = (
        f"{artefact} is a pickle: code that runs when it is loaded, so nothing here loads it.\n"
        f"If you trust it, convert it in an environment of your own that has {NEEDS}:\n"
        f"  modelyard init {folder} --from {artefact} > convert.py\n"
        f"  PYTHON convert.py {artefact} model.onnx\n"
        f"  modelyard init {folder} --from model.onnx\n"
        f"or all at once: modelyard init {folder} --from {artefact} --convert --python PYTHON"
    )
    return MessageOutput(sentence, {"script": SCRIPT}, SCRIPT.rstrip("\n"))


@contextmanager
def _building(folder: Path) -> Iterator[Path]:
    folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".init-", dir=folder.absolute().parent) as outer:
        building = Path(outer, folder.absolute().name)
        building.mkdir()
        yield building


def _make(
    given: argparse.Namespace, artefact: Path, name: str, building: Path
) -> tuple[ModelConfig, bool]:
    """The config, and whether its tensors are guessed. Raises BadArtefact, ConversionFailed,
    LoadFailed, OSError."""
    source = artefact
    if artefact.suffix.lower() in PICKLES:
        if not given.python:
            raise BadArtefact(
                "--convert runs the pickle's code: name the interpreter to run it with, "
                f"--python PATH, whose environment has {NEEDS}"
            )
        source = convert(Path(given.python), artefact, building.parent)
    version = building / "1"
    version.mkdir()
    for file, target in files_of(source):
        copy(file, version / target)
    written = ModelConfig(name=name)
    _add_given(written, given)
    guessed = False
    if format_of(source.name) is not None and source.suffix == ".py":
        guessed = _read_python(written, source)
    config = _completed(written, version)
    if config.backend == "python" and not config.output:
        raise BadArtefact(
            f"{artefact} names no output; give it: --output NAME:TYPE:DIMS, e.g. y:FP32:-1,4"
        )
    text = config_text(config, artefact.name, guessed)
    (building / "config.pbtxt").write_text(text)
    return config, guessed


def _read_python(config: ModelConfig, source: Path) -> bool:
    """Tensors of a python model's code. Raises BadArtefact for what is no python model."""
    content = source.read_bytes()
    for problem in problems(source.name, content, lambda _: True):
        where = f"{source}:{problem.line}" if problem.line else str(source)
        raise BadArtefact(f"{where}: {problem.message}")
    return add_tensors(config, content) if not config.output else False


def _add_given(config: ModelConfig, given: argparse.Namespace) -> None:
    """The tensors of --input and --output; a first dimension of -1 in all of them is the batch."""
    inputs, outputs = ([_tensor(one) for one in rows or ()] for rows in (given.input, given.output))
    shapes = [dims for _, _, dims in (*inputs, *outputs)]
    batched = bool(shapes) and all(len(dims) > 1 and dims[0] == -1 for dims in shapes)
    for kind, rows in (("input", inputs), ("output", outputs)):
        for name, data_type, dims in rows:
            shown = dims[1:] if batched else dims
            getattr(config, kind).add(name=name, data_type=data_type, dims=shown)
    if given.max_batch_size is not None:
        config.max_batch_size = given.max_batch_size
    elif batched:
        config.max_batch_size = _BATCHES
        config.dynamic_batching.SetInParent()


def _completed(config: ModelConfig, path: Path) -> ModelConfig:
    """The config that the server would serve it with. Raises LoadFailed."""
    version = ModelVersion(config.name, 1, path.parent, path, config, "")

    async def complete() -> ModelConfig:
        checker = parsing_checker([version])
        try:
            return await checker.complete(version)
        finally:
            await checker.close()

    try:
        return asyncio.run(complete())
    except LoadFailed as error:
        if "records neither types nor shapes" not in str(error):
            raise
        raise BadArtefact(
            f"{str(error).partition('; write both')[0]}; give them in the order of forward, e.g. "
            "--input x:FP32:-1,4 --output OUTPUT__0:FP32:-1,2 (a first -1 is the batch)"
        ) from None


def _report(folder: Path, artefact: Path, config: ModelConfig, guessed: bool) -> Shown:
    findings = find([folder])
    for finding in findings:
        sys.stderr.write(f"{finding}\n")
    settings = _settings()
    found = f"{len(findings)} findings, see above" if findings else "no findings"
    call = curl(config, f"http://127.0.0.1:{settings.http_port}")
    lines = [
        f"{folder} is made from {artefact}: {_contents(folder)}",
        f"  {config.backend}: {tensors_text(config, 'input')} -> {tensors_text(config, 'output')}",
        *(["  types and dims are guessed: set them in config.pbtxt first"] if guessed else []),
        f"  modelyard check: {found}",
        "serve it:",
        f"  {_serve(folder, settings)}",
        "and ask it from another terminal:",
        f"  {call}",
    ]
    item = {"folder": str(folder), "findings": [str(one) for one in findings], "call": call}
    return MessageOutput("\n".join(lines), item)


def _contents(folder: Path) -> str:
    names = sorted(path.name for path in (folder / "1").iterdir())
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"config.pbtxt, 1/{', 1/'.join(names[:3])}{more}"


def _serve(folder: Path, settings: Settings) -> str:
    repository = folder.absolute().parent
    if repository in (one.absolute() for one in settings.model_repository):
        return "modelyard serve"
    return f"modelyard serve --model-repository {folder.parent}"


def _settings() -> Settings:
    try:
        return read_settings({}, os.environ, Path.cwd())
    except SettingsError as error:
        raise CommandFailed(str(error)) from None


def _tensor(text: str) -> tuple[str, int, list[int]]:
    """ "x:FP32:-1,4" → its parts."""
    name, _, rest = text.rpartition(":")[0].partition(":")
    kind, dims = rest, text.rpartition(":")[2]
    number = _TENSOR_TYPES.get(kind.upper().removeprefix("TYPE_").replace("STRING", "BYTES"))
    try:
        sizes = [int(one) for one in dims.split(",")]
    except ValueError:
        sizes = []
    if not name or number in (None, pb.TYPE_INVALID) or not sizes:
        raise BadArtefact(
            f"'{text}' is no tensor; give NAME:TYPE:DIMS, e.g. x:FP32:-1,4; types are "
            + ", ".join(_TENSOR_TYPES)
        )
    assert number is not None
    return name, number, sizes
