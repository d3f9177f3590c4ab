"""Which conversion a version's files and the spec's target ask for. Pure but for listing files."""

from pathlib import Path
from typing import NamedTuple

from tritonclient.grpc import model_config_pb2 as pb

from control.jobs.specs.convert import ConvertSpec
from jobs.tools.networks.files import named_file, version_name
from jobs.tools.work import refuse

PICKLES = (".pkl", ".pickle", ".joblib")
_TO_ONNX = {
    ".pt2": "exported_programs", ".pt": "torchscript", ".json": "xgboost_trees",
    ".ubj": "xgboost_trees", ".txt": "lightgbm_trees", **dict.fromkeys(PICKLES, "scikit"),
}  # fmt: skip
_FROM_ONNX = {"openvino": "openvino_ir", "ncnn": "ncnn_files"}
_TENSORFLOW = (
    "TensorFlow's files need an environment of their own (1.5 GB), which this server does not "
    "have; convert it where TensorFlow is: `python -m tf2onnx.convert --saved-model FOLDER "
    "--output model.onnx`, or for Keras `model.export('model.onnx', format='onnx')`"
)
_OTHERS = {
    ".pb": _TENSORFLOW, ".keras": _TENSORFLOW, ".h5": _TENSORFLOW,
    ".pth": "weights alone are no network: load them into the model's class and save it by "
    "torch.export.save (model.pt2)",
    ".bin": "weights alone are no network: save the Hugging Face folder anew as safetensors",
}  # fmt: skip
_LITERT = (
    "conversions to LiteRT are not offered: litert-torch needs an environment of 1.9 GB with JAX, "
    "and onnx2tf pins TensorFlow 2.19 and numpy 1.26; convert it where one of them is installed "
    "and add the model.tflite as a version"
)


class Conversion(NamedTuple):
    """The module of `jobs.tools.convert` that does it, and the file it starts from."""

    module: str
    path: Path


def conversion_of(source: Path, config: pb.ModelConfig, spec: ConvertSpec) -> Conversion:
    """The conversion for these files. Refuses those that there is none for."""
    if spec.target == "litert":
        refuse(_LITERT)
    files = [path for path in sorted(source.iterdir()) if path.name != "config.pbtxt"]
    path = _model_file(source, files, config, spec)
    if spec.target == "onnx":
        return Conversion(_module_to_onnx(path, files, spec), path)
    if path.suffix != ".onnx":
        refuse(
            f"{version_name(spec)} is {path.name}; {spec.target} is written from ONNX: convert it "
            "to ONNX first"
        )
    return Conversion(_FROM_ONNX[spec.target], path)


def _module_to_onnx(path: Path, files: list[Path], spec: ConvertSpec) -> str:
    if path.suffix == ".onnx":
        refuse(f"{version_name(spec)} is ONNX already ({path.name})")
    if path.name == "config.json":
        return "hugging_face"
    if path.suffix in PICKLES and not spec.trusted:
        refuse(
            f"{path.name} is a pickle, and loading it runs the code in it; an administrator who "
            "trusts its publisher can start this job with `trusted: true`"
        )
    if path.suffix in _TO_ONNX:
        return _TO_ONNX[path.suffix]
    names = ", ".join(one.name for one in files) or "no file"
    reason = next((_OTHERS[one.suffix] for one in files if one.suffix in _OTHERS), "")
    return refuse(
        f"{version_name(spec)} has {names}, which cannot be converted to ONNX"
        + (f": {reason}" if reason else "")
    )


def _model_file(source: Path, files: list[Path], config: pb.ModelConfig, spec: ConvertSpec) -> Path:
    """The file that the config names, or that of a known ending."""
    if named := str(config.default_model_filename):
        path = named_file(source, named, version_name(spec))
        if not path.is_file():
            refuse(f"{version_name(spec)} has no '{named}', which its config names")
        return path
    if (source / "config.json").is_file() and any(one.suffix == ".safetensors" for one in files):
        return source / "config.json"
    known = [one for one in files if one.suffix in (*_TO_ONNX, ".onnx") and one.stem == "model"]
    known = known or [one for one in files if one.suffix in (*_TO_ONNX, *_OTHERS, ".onnx")]
    if known:
        return known[0]
    folders = [one for one in files if one.is_dir() and (one / "saved_model.pb").is_file()]
    if (source / "saved_model.pb").is_file() or folders:
        refuse(f"{version_name(spec)} is a SavedModel. {_TENSORFLOW}")
    names = ", ".join(one.name for one in files) or "no file"
    return refuse(f"{version_name(spec)} has {names}: no file of a known format")
