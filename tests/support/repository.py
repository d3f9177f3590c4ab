"""Real model folders for the tests of `repository`."""

from pathlib import Path

CONFIG = """\
backend: "identity"
max_batch_size: 8
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 16 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 16 ] } ]
"""


def put_model(root: Path, name: str, *versions: int, config: str | None = CONFIG) -> Path:
    """A model folder whose versions have one file each; no config.pbtxt when `config` is None."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    if config is not None:
        (folder / "config.pbtxt").write_text(config)
    for number in versions:
        put_version(folder, number)
    return folder


def put_version(folder: Path, number: int, content: bytes = b"weights") -> Path:
    path = folder / str(number)
    path.mkdir(exist_ok=True)
    (path / "model.bin").write_bytes(content)
    return path
