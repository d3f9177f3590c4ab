"""Makes a good digits/3 and a corrupt digits/4: `python -m examples.digits.more_versions`.

With `--into` a folder of your own they lie there as `digits/3` and `digits/4`, ready to be copied
into a repository that a server watches.
"""

import argparse
import os
import tempfile
from pathlib import Path

from examples.digits.build import build

GOOD, CORRUPT = 3, 4


def main() -> None:
    """Write the versions asked for, and say where."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.digits.more_versions", description=__doc__
    )
    parser.add_argument("--into", type=Path, required=True, help="folder that gets digits/3 and /4")
    parser.add_argument("--only", type=int, choices=(GOOD, CORRUPT), help="make just this one")
    arguments = parser.parse_args()
    for version in [arguments.only] if arguments.only else [GOOD, CORRUPT]:
        print(f"wrote {place(version, arguments.into)}")


def place(version: int, into: Path) -> Path:
    """Make one version in `into/digits` and return its folder; raises `OSError` if it exists."""
    model = into / "digits"
    model.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=into) as temporary:
        folder = Path(temporary) / str(version)
        folder.mkdir()
        build(GOOD, folder)
        if version == CORRUPT:
            _tear(folder / "model.onnx")
        os.rename(folder, model / str(version))
    return model / str(version)


def _tear(path: Path) -> None:
    """Leave the first half of a file, as an interrupted copy would."""
    os.truncate(path, path.stat().st_size // 2)


if __name__ == "__main__":
    main()
