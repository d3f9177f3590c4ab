"""Writes the network for every runtime that is installed: `python -m examples.one_network.build`.

Version 1 is ONNX Runtime's, and the others follow in the order of `formats.WRITERS`; a runtime
that is not installed has no version.
"""

import argparse
from pathlib import Path

from backends.errors import LoadFailed
from backends.registry import require_packages
from examples.one_network.formats import WRITERS
from examples.one_network.network import CHANNELS, CLASSES, INPUT, OUTPUT, SIZE

NAME = "one_network"
CONFIG = f"""name: "{NAME}"
max_batch_size: 16
input {{ name: "{INPUT}" data_type: TYPE_FP32 dims: [ {CHANNELS[0]}, {SIZE}, {SIZE} ] }}
output {{ name: "{OUTPUT}" data_type: TYPE_FP32 dims: [ {CLASSES} ] }}
version_policy {{ all {{ }} }}
dynamic_batching {{ }}
"""
"""It names no backend: the file of each version does."""


def main() -> None:
    """Build, and say what was left out."""
    parser = argparse.ArgumentParser(prog="python -m examples.one_network.build")
    parser.add_argument("--into", type=Path, required=True, help="the model repository to fill")
    built = build(parser.parse_args().into)
    print("\n".join(f"version {number}: {backend}" for number, backend in built.items()))


def build(repository: Path) -> dict[int, str]:
    """Write the model; the backend of each version that was built."""
    built = {}
    for number, (backend, write) in enumerate(WRITERS.items(), 1):
        try:
            require_packages(backend)
        except LoadFailed as error:
            print(f"version {number} is left out: {error}")
            continue
        folder = repository / NAME / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        write(folder)
        built[number] = backend
    (repository / NAME / "config.pbtxt").write_text(CONFIG)
    return built


if __name__ == "__main__":
    main()
