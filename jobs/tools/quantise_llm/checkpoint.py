"""A Hugging Face checkpoint read layer by layer, and one written shard by shard."""

import json
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from jobs.tools.work import refuse

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
FAMILIES = ("granite", "llama", "mistral", "olmo2", "qwen2", "qwen3")
"""Whose layers are walked one by one; others have experts, fused linears or norms of their own."""
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5", ".msgpack")


class CheckpointReader:
    """The tensors of a checkpoint folder by name. A context manager.

    Raises WorkRefused naming the file, tensor or field that is wrong.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = _read_json(folder, "config.json")
        self.family = self.config.get("model_type")
        if self.family not in FAMILIES:
            refuse(
                f"config.json: model_type is '{self.family}'; quantised as checkpoints are "
                f"{', '.join(FAMILIES)}; others are quantised while they load, by the parameter "
                "precision of config.pbtxt"
            )
        if self.config.get("quantization_config"):
            refuse("config.json says that the weights are quantised already; give the original")
        self._stack = ExitStack()
        self._opened: dict[str, Any] = {}
        self._file_of = self._listed()

    def __enter__(self) -> "CheckpointReader":
        return self

    def __exit__(self, *reasons: object) -> None:
        self._stack.close()

    def below(self, prefix: str) -> dict[str, Tensor]:
        """Tensors whose names begin so, by the rest of their names."""
        names = [name for name in self._file_of if name.startswith(prefix)]
        if not names:
            refuse(f"the checkpoint has no tensor '{prefix}…', which config.json asks for")
        return {name.removeprefix(prefix): self._tensor(name) for name in names}

    @property
    def bytes(self) -> int:
        """Of the files that hold its tensors; others beside them are not read."""
        files = set(self._file_of.values())
        return sum((self.folder / one).stat().st_size for one in files)

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    def _tensor(self, name: str) -> Tensor:
        file = self._file_of[name]
        try:
            if file not in self._opened:
                opened = safe_open(self.folder / file, framework="pt")
                self._opened[file] = self._stack.enter_context(opened)
            tensor: Tensor = self._opened[file].get_tensor(name)
        except (SafetensorError, OSError) as error:
            refuse(f"{file}: tensor '{name}' cannot be read: {error}")
        if not tensor.is_floating_point():
            refuse(f"{file}: tensor '{name}' is {tensor.dtype}; it must be floating point")
        return tensor

    def _listed(self) -> dict[str, str]:
        if (self.folder / INDEX).is_file():
            listed = _read_json(self.folder, INDEX).get("weight_map")
            plain = isinstance(listed, dict) and all(
                isinstance(file, str) and Path(file).name == file for file in listed.values()
            )
            if not plain:
                refuse(f"{INDEX}: 'weight_map' must name files beside it")
            assert isinstance(listed, dict)
            return listed
        try:
            with safe_open(self.folder / SINGLE, framework="pt") as file:
                return dict.fromkeys(file.keys(), SINGLE)
        except (SafetensorError, OSError) as error:
            refuse(f"{SINGLE} cannot be read: {error}")


class CheckpointWriter:
    """Writes shards as they come, then the index, the config and what lies beside the weights."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._map: dict[str, str] = {}
        self._shards = 0
        self.bytes = 0

    def add(self, tensors: Mapping[str, Tensor]) -> None:
        """Write one shard."""
        self._shards += 1
        file = f"model-{self._shards:05}.safetensors"
        whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
        save_file(whole, self._folder / file, metadata={"format": "pt"})
        self._map |= dict.fromkeys(whole, file)
        self.bytes += sum(tensor.nbytes for tensor in whole.values())

    def finish(self, source: CheckpointReader, quantisation: Mapping[str, object]) -> None:
        """Write the rest, with which the folder is a checkpoint."""
        index = {"metadata": {"total_size": self.bytes}, "weight_map": self._map}
        config = {**source.config, "quantization_config": quantisation}
        for name, content in ((INDEX, index), ("config.json", config)):
            (self._folder / name).write_text(json.dumps(content, indent=2) + "\n")
        left_out = {INDEX, "config.json", "config.pbtxt"}
        for one in sorted(source.folder.iterdir()):
            if one.is_file() and one.name not in left_out and one.suffix not in _WEIGHTS:
                shutil.copyfile(one, self._folder / one.name)


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    try:
        found = json.loads((folder / name).read_text())
    except (OSError, ValueError) as error:
        refuse(f"{name} cannot be read: {error}")
    if not isinstance(found, dict):
        refuse(f"{name} is no JSON object")
    return found
