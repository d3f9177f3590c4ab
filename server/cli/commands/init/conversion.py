"""From a pickle to ONNX: a script for an environment that the user names. A pickle is code: it is
opened by that script alone, and never by us."""

import re
import subprocess
import sys
from pathlib import Path

PICKLES = (".pkl", ".pickle", ".joblib")

SCRIPT = '''\
"""Convert a pickled scikit-learn, XGBoost or LightGBM model to ONNX: python FILE IN OUT.

Loading a pickle runs whatever code is in it: do so only with a file you trust.
"""
import pickle
import sys

source, target = sys.argv[1:3]
try:
    import joblib

    model = joblib.load(source)
except ImportError:
    with open(source, "rb") as file:
        model = pickle.load(file)

family = type(model).__module__.partition(".")[0]
width = getattr(model, "n_features_in_", None)
if family == "xgboost":
    from onnxmltools import convert_xgboost as convert
    from onnxmltools.convert.common.data_types import FloatTensorType
elif family == "lightgbm":
    from onnxmltools import convert_lightgbm as convert
    from onnxmltools.convert.common.data_types import FloatTensorType
elif family == "sklearn":
    from skl2onnx import convert_sklearn as convert
    from skl2onnx.common.data_types import FloatTensorType
else:
    sys.exit(f"a {type(model).__module__}.{type(model).__name__} has no converter here; "
             "write a python model that loads it (docs/backends.md)")
options = {id(model): {"zipmap": False}} if hasattr(model, "predict_proba") else None
more = {"options": options} if family == "sklearn" and options else {}
if family == "lightgbm":
    more = {"zipmap": False}
made = convert(model, initial_types=[("input", FloatTensorType([None, width]))], **more)
with open(target, "wb") as file:
    file.write(made.SerializeToString())
print(f"converted {type(model).__name__} with {width} features")
'''

NEEDS = "scikit-learn and skl2onnx (for XGBoost and LightGBM onnxmltools too)"
LONGEST_S = 600.0


class ConversionFailed(Exception):
    """One line for the person."""


def convert(python: Path, source: Path, folder: Path) -> Path:
    """Run the script with the interpreter `python` in a process of its own, whose folder is
    `folder`; the ONNX file made there. Raises ConversionFailed."""
    script, target = folder / "convert.py", folder / "model.onnx"
    script.write_text(SCRIPT)
    command = [str(python), "-P", str(script), str(source.absolute()), str(target.absolute())]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=LONGEST_S, check=False
        )
    except OSError as error:
        raise ConversionFailed(f"{python} cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise ConversionFailed(f"the conversion took longer than {LONGEST_S:g} s") from None
    sys.stderr.write(done.stdout)
    if done.returncode or not target.is_file():
        last = (done.stderr.strip().splitlines() or ["it wrote no file"])[-1]
        raise ConversionFailed(
            f"the conversion with {python} failed: {last}{_remedy(python, last)}"
        )
    return target


def _remedy(python: Path, error: str) -> str:
    missing = re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", error)
    if missing is None:
        return ""
    package = missing[1].partition(".")[0]
    return f"; install it there: {python} -m pip install {_PACKAGES.get(package, package)}"


_PACKAGES = {"sklearn": "scikit-learn"}
"""Module → the package that has it, where the names differ."""
