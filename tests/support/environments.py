"""Small Python environments with packages of their own, for real workers."""

import sys
import tarfile
import venv
import zipfile
from pathlib import Path
from sysconfig import get_paths

import numpy

MODEL = """
import sys
import numpy as np
import only_here
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(0)
        config.add_output({"name": "OUT", "data_type": "TYPE_STRING", "dims": [-1]})
        return config

    def execute(self, requests):
        said = [only_here.SAID, sys.prefix, "msgspec" in sys.modules]
        try:
            import msgspec
            said.append(msgspec.__file__)
        except ImportError as error:
            said.append(str(error))
        out = np.array([str(one) for one in said], np.object_)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)]) for _ in requests]
"""
CONFIG = """
backend: "python"
input { name: "IN" data_type: TYPE_FP32 dims: 1 }
"""
INFER = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [1]}]}


def environment_path(value: object) -> str:
    return f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{value}" }} }}'


def write_model(root: Path, name: str, more: str = "", model: str = MODEL) -> Path:
    """The model's folder, with one version."""
    folder = root / name
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text(model)
    (folder / "config.pbtxt").write_text(CONFIG + more)
    return folder


def site_packages(environment: Path) -> Path:
    return environment / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


def make_environment(folder: Path, with_numpy: bool = True, **modules: str) -> Path:
    """A virtual environment with these modules, and the numpy of ours linked into it."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    packages = site_packages(folder)
    for name, text in modules.items():
        (packages / f"{name}.py").write_text(text)
    if with_numpy:
        installed = Path(numpy.__file__).parent
        for one in (installed, installed.parent / "numpy.libs"):
            if one.exists():
                (packages / one.name).symlink_to(one)
    assert Path(get_paths()["purelib"]) != packages
    return folder


def packed(environment: Path, archive: Path) -> Path:
    with tarfile.open(archive, "w:gz") as opened:
        for entry in sorted(environment.iterdir()):
            opened.add(entry, entry.name)
    return archive


def write_wheel(folder: Path, name: str, version: str, code: str, *requires: str) -> Path:
    """A wheel of one module, as pip takes it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": "\n".join([*lines, *(f"Requires-Dist: {one}" for one in requires), ""]),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    record = "".join(f"{one},,\n" for one in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in (*files.items(), (f"{info}/RECORD", record)):
            wheel.writestr(file, text)
    return path
