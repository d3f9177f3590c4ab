"""`modelyard demo`: the digits example as it comes with Modelyard, in a folder, served."""

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from server.settings.table import Settings

DEMO_FOLDER = "modelyard-demo"
"""Where nobody names another."""

_MODEL = Path("models") / "digits"
_FILES = Path(__file__).parent / "demo_files"


class Demo:
    """One folder with the example: `models/digits`, a request, a caller, and the server's state."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.defaults = {"state_dir": str(folder / ".modelyard")}

    def flags(self, given: Mapping[str, str | Sequence[str]]) -> dict[str, str | Sequence[str]]:
        """The flags given, with the folder's models served before any others."""
        others = given.get("model_repository", ())
        return {**given, "model_repository": [str(self.folder / "models"), *others]}

    def write(self) -> str:
        """Write what is missing, and say so in a line. Raises OSError."""
        model = self.folder / _MODEL
        model.parent.mkdir(parents=True, exist_ok=True)
        fresh = [one for one in self._missing() if _put(one, self.folder)]
        what = "written" if fresh else "there already"
        return f"the digits example is {what}: {model} (trained beforehand; see examples/digits)"

    def calls(self, settings: Settings, addresses: Mapping[str, str]) -> str:
        """The calls to try, for the addresses that are open."""
        lines = ["", "try, in another shell:"]
        if rest := addresses.get("REST", ""):
            request = shlex.quote(f"@{self.folder / 'request.json'}")
            lines.append(f"  curl -s {rest}/v2/models/digits/infer -d {request}")
        if grpc := addresses.get("gRPC", ""):
            caller = shlex.join([sys.executable, str(self.folder / "call.py"), grpc])
            lines.append(f"  {caller}   # tritonclient")
        if rest:
            lines.append(f"  {rest}/docs   in a browser: what REST can do")
        if settings.allow_admin:
            lines.append("and the console: the link for the first administrator is printed here")
        return "\n".join(lines) + "\n"

    def _missing(self) -> list[Path]:
        """Files and folders, relative: the model, or what it lacks; no version is looked into."""
        paths = [_MODEL, Path("request.json"), Path("call.py")]
        if (self.folder / _MODEL).is_dir():
            paths[:1] = sorted(_MODEL / one.name for one in (_FILES / _MODEL).iterdir())
        return [one for one in paths if not (self.folder / one).exists()]


def _put(name: Path, folder: Path) -> Path:
    """Copy a file or folder whole: a server that watches sees all of it or nothing."""
    with tempfile.TemporaryDirectory(prefix=".demo-", dir=folder) as temporary:
        made = Path(temporary) / name.name
        source = _FILES / name
        if source.is_dir():
            shutil.copytree(source, made, copy_function=shutil.copyfile)
        else:
            shutil.copyfile(source, made)
        os.replace(made, folder / name)
    return folder / name
