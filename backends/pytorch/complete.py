"""Complete a config from a model.pt2 or model.pt, as zip archives; nothing is unpickled."""

import zlib
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from backends.artefact import Artefact, complete_config, input_names, refuse
from backends.pytorch.program import read_program
from backends.pytorch.script import Forward, complete_script, read_forward, root_class
from repository.model import ModelConfig, ModelVersion

LARGEST_ENTRY_BYTES = 256 << 20
"""A program's JSON or source larger than this is refused unread: it is no honest model."""


def complete(version: ModelVersion, path: Path, default_max_batch: int) -> ModelConfig:
    """The completed config of the archive at `path`; LoadFailed as `backends.seam` promises."""
    try:
        with ZipFile(path) as archive:
            program = _entry(archive, "/models/model.json")
            if program:
                text = _read(version, archive, program)
                artefact = _as_called(version.config, read_program(version, path.name, text))
                return complete_config(version, "pytorch", artefact, default_max_batch)
            return complete_script(version, path.name, _forward(version, path.name, archive))
    except (BadZipFile, EOFError, zlib.error) as error:
        refuse(version, f"{path.name} is not a PyTorch archive, or is cut short: {error}")
    except OSError as error:
        refuse(version, f"{path.name} cannot be read: {error.strerror}")


def _as_called(config: ModelConfig, artefact: Artefact) -> Artefact:
    """The artefact under the config's names, where the config names all inputs in its own words:
    the first one written is then the first argument of `forward`, and so on."""
    artefact_names = {tensor.name for tensor in artefact.inputs}
    names = input_names(config)
    if len(names) != len(artefact.inputs) or not artefact_names.isdisjoint(names):
        return artefact
    inputs = zip(names, artefact.inputs, strict=True)
    return artefact._replace(inputs=tuple(found._replace(name=name) for name, found in inputs))


def _forward(version: ModelVersion, file: str, archive: ZipFile) -> Forward:
    pickled = _entry(archive, "/data.pkl")
    root = pickled.removesuffix("data.pkl")
    if not pickled or not any(name.startswith(f"{root}code/") for name in archive.namelist()):
        refuse(
            version,
            f"{file} holds no TorchScript (was it written by torch.save?); write model.pt "
            "with torch.jit.save, or model.pt2 with torch.export.save",
        )
    try:
        module, name = root_class(_read(version, archive, pickled))
        source = _read(version, archive, f"{root}code/{module.replace('.', '/')}.py").decode()
        return read_forward(version, file, name, source)
    except (KeyError, ValueError, SyntaxError, RecursionError) as error:
        refuse(version, f"{file} is no TorchScript this server reads: {error}")


def _entry(archive: ZipFile, ending: str) -> str:
    return next((name for name in archive.namelist() if name.endswith(ending)), "")


def _read(version: ModelVersion, archive: ZipFile, name: str) -> bytes:
    size = archive.getinfo(name).file_size
    if size > LARGEST_ENTRY_BYTES:
        refuse(version, f"{name} has {size} bytes; more than {LARGEST_ENTRY_BYTES} are not read")
    return archive.read(name)
