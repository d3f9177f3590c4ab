"""torch.export archives that run something when they are loaded, each by another way, for tests.

What they run appends a line to a marker file.
"""

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch

from support.native_code import operators

Program = dict[str, Any]


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.linear(x), x * 2], dim=1).relu()


def save_program(path: Path) -> None:
    """An honest program: `x` FP32 [rows, 4] → [rows, 7]."""
    rows = torch.export.Dim("rows")
    exported = torch.export.export(Network(), (torch.zeros(2, 4),), dynamic_shapes=({0: rows},))
    torch.export.save(exported, path)


def save_changed(program: Path, path: Path, ending: str, change: Callable[[bytes], bytes]) -> None:
    """`program` with the entry whose name ends so changed."""
    with ZipFile(program) as source, ZipFile(path, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            target.writestr(name, change(content) if name.endswith(ending) else content)


def save_hostile(way: str, program: Path, path: Path, marker: Path) -> None:
    """`program` made hostile in one of `WAYS`."""
    if way == "samples":
        save_changed(program, path, "sample_inputs/model.pt", lambda _: _pickled(marker) + _saved())
        return
    library = marker.with_suffix(".so")
    operators(library, marker)

    def change(content: bytes) -> bytes:
        parsed = json.loads(content)
        WAYS_OF_JSON[way](parsed, _spec_of(parsed), library, marker)
        return json.dumps(parsed).encode()

    save_changed(program, path, "models/model.json", change)


def _spec_of(program: Program) -> Program:
    found: Program = program["graph_module"]["module_call_graph"][0]["signature"]
    return found


def _enum(program: Program, signature: Program, library: Path, marker: Path) -> None:
    node = {"__enum__": True, "fqn": "ctypes:cdll", "name": str(library)}
    tree = {"type": "builtins.dict", "context": json.dumps([node]), "children_spec": [LEAF]}
    signature["out_spec"] = json.dumps([1, tree])


def _default_factory(program: Program, signature: Program, library: Path, marker: Path) -> None:
    context = {
        "default_factory_module": marker.stem,
        "default_factory_name": "x",
        "dict_context": ["y"],
    }
    _write_module(marker)
    tree = {"type": "collections.defaultdict", "context": context, "children_spec": [LEAF]}
    signature["out_spec"] = json.dumps([1, tree])


def _guard(program: Program, signature: Program, library: Path, marker: Path) -> None:
    program["guards_code"] = [f"{_writing(marker)} is not None"]


def _guard_in_pieces(program: Program, signature: Program, library: Path, marker: Path) -> None:
    """One word, until torch takes the line ends out: then escapes that end its own string."""
    _write_module(marker)
    said = f'");__import__("{marker.stem}")#'
    program["guards_code"] = ["'" + "".join(f"\\\nx{ord(one):02x}" for one in said) + "'"]


def _name(program: Program, signature: Program, library: Path, marker: Path) -> None:
    text = json.dumps(program).replace('"x"', json.dumps(f"x={_writing(marker)}"))
    program.clear()
    program.update(json.loads(text))


def _write_module(marker: Path) -> None:
    marker.with_suffix(".py").write_text(f"{_writing(marker)}\n")


def _writing(marker: Path) -> str:
    return f"open('{marker}', 'a').write('1\\n')"


class _Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, (_writing(self.marker),)


def _pickled(marker: Path) -> bytes:
    """What torch's older files begin with, then something that is called."""
    parts: tuple[object, ...] = (0x1950A86A20F9469CFC6C, 1001, {}, _Evil(marker))
    return b"".join(pickle.dumps(one, 2) for one in parts)


def _saved() -> bytes:
    file = io.BytesIO()
    torch.save(((torch.zeros(2, 4),), {}), file)
    return file.getvalue()


LEAF = {"type": None, "context": None, "children_spec": []}
WAYS_OF_JSON = {
    "enum": _enum,
    "default factory": _default_factory,
    "guard": _guard,
    "guard in pieces": _guard_in_pieces,
    "name": _name,
}
WAYS = (*WAYS_OF_JSON, "samples")
