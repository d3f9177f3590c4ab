"""ONNX Runtime as the server loads it tells nobody anything."""

import subprocess
import sys
from pathlib import Path

from examples.simple import build

_LOAD = """
import sys
from backends.onnx import backend as onnx_runtime
onnx_runtime.ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
"""


def test_a_session_leaves_no_device_id_and_no_telemetry_in_the_home_folder(tmp_path: Path) -> None:
    build.build(1, tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    # Nothing is inherited: its telemetry is also off where CI is set, which would prove nothing.
    environment = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}

    command = [sys.executable, "-c", _LOAD, str(tmp_path / "model.onnx")]
    subprocess.run(command, env=environment, check=True)

    assert [path for path in home.rglob("*") if path.is_file()] == []
