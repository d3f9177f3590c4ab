"""A checkpoint held against its config by its headers: what does not fit is named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from backends.llm.config.families import read_config
from backends.llm.errors import BadCheckpoint
from backends.llm.ops.quantise import Weight
from backends.llm.ops.reference import TorchOps
from backends.llm.weights.checkpoint import Checkpoint
from backends.llm.weights.expected_tensors import expected_tensors
from backends.llm.weights.headers import INDEX, SINGLE, hold_against, read_headers
from backends.llm.weights.stream import load_weights
from support.llm import BLOCK_TOKENS, VARIANTS, make_checkpoint


def examine(folder: Path) -> None:
    headers = read_headers(folder)
    hold_against(headers, expected_tensors(read_config(folder), headers))


class Noting(Checkpoint):
    """Remembers what was asked of it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.asked: dict[str, tuple[int, ...]] = {}

    def tensor(self, name: str, *shape: int) -> torch.Tensor:
        self.asked[name] = shape
        return super().tensor(name, *shape)

    def weight(self, name: str, outputs: int, inputs: int) -> Weight:
        self.asked[name] = outputs, inputs
        return super().weight(name, outputs, inputs)


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_expected_is_what_loading_reads(variant: str, tmp_path: Path) -> None:
    make_checkpoint(variant, tmp_path)
    config = read_config(tmp_path)
    with Noting(tmp_path) as checkpoint:
        load_weights(checkpoint, config, TorchOps(config, torch.float32, BLOCK_TOKENS), "float32")
        assert dict(expected_tensors(config, checkpoint)) == checkpoint.asked
    examine(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("whole")
    make_checkpoint("llama", folder)
    return folder


@pytest.fixture
def copied(whole: Path, tmp_path: Path) -> Path:
    for file in whole.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def drop(folder: Path) -> None:
    tensors = load_file(folder / SINGLE)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / SINGLE)


def reshape(folder: Path) -> None:
    tensors = load_file(folder / SINGLE)
    tensors["model.norm.weight"] = torch.ones(65)
    save_file(tensors, folder / SINGLE)


def whole_numbers(folder: Path) -> None:
    tensors = load_file(folder / SINGLE)
    tensors["model.norm.weight"] = torch.ones(64, dtype=torch.int32)
    save_file(tensors, folder / SINGLE)


def cut_off(folder: Path) -> None:
    data = (folder / SINGLE).read_bytes()
    (folder / SINGLE).write_bytes(data[: len(data) // 2])


def cut_off_in_header(folder: Path) -> None:
    (folder / SINGLE).write_bytes((folder / SINGLE).read_bytes()[:100])


def lie(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    data = (folder / SINGLE).read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    change(header["model.norm.weight"])
    written = json.dumps(header).encode()
    (folder / SINGLE).write_bytes(len(written).to_bytes(8, "little") + written + data[8 + length :])


def lie_in_shape(folder: Path) -> None:
    lie(folder, lambda entry: entry.update(shape=[1 << 40]))


def lie_in_offsets(folder: Path) -> None:
    lie(folder, lambda entry: entry.update(data_offsets=[-4, 1 << 50]))


def lie_in_kind(folder: Path) -> None:
    lie(folder, lambda entry: entry.update(shape="64"))


def pickle_alone(folder: Path) -> None:
    (folder / SINGLE).rename(folder / "pytorch_model.bin")


def point(folder: Path, file: object, name: str = "model.norm.weight") -> None:
    (folder / INDEX).write_text(json.dumps({"weight_map": {name: file}}))


def test_a_whole_checkpoint_is_let_by(whole: Path) -> None:
    examine(whole)


@pytest.mark.parametrize(
    ("break_it", "complaint"),
    [
        (drop, "lacks the tensor 'model.layers.1.mlp.up_proj.weight'"),
        (reshape, "'model.norm.weight' has shape [65], but config.json makes it [64]"),
        (whole_numbers, "'model.norm.weight' is I32; it must be one of"),
        (cut_off, "does not fit the file"),
        (cut_off_in_header, "no safetensors file, or was cut off"),
        (lie_in_shape, "does not fit the file"),
        (lie_in_offsets, "does not fit the file"),
        (lie_in_kind, "does not fit the file"),
        (pickle_alone, "only safetensors are read"),
        (lambda folder: point(folder, "../other.safetensors"), "must be a .safetensors file"),
        (lambda folder: point(folder, "gone.safetensors"), "which is not there"),
        (lambda folder: point(folder, SINGLE, "model.other"), "which does not have it"),
    ],
)
def test_a_broken_one_is_refused_naming_the_file_or_tensor(
    copied: Path, break_it: Callable[[Path], None], complaint: str
) -> None:
    break_it(copied)
    with pytest.raises(BadCheckpoint) as refused:
        examine(copied)
    assert complaint in str(refused.value)
