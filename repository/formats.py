"""Model files by their endings: what each one is, which backend serves it, and what to do where
none does. The one table of formats; docs/formats.md is written from it. Pure but for `installed`.
"""

import re
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import PurePath
from typing import NamedTuple


class Format(NamedTuple):
    """A kind of model file.

    `what`: with its article. `backend`: of ours, "" where there is none yet. `file`: its name in a
    version folder, where a backend serves it. `package`: the runtime as Python imports it, ""
    where there is none in Python. `extra`: of Modelyard's, which installs the runtime. `remedy`: a
    command or a sentence for who has such a file and cannot serve it; {file} is its name.
    """

    suffix: str
    what: str
    backend: str = ""
    file: str = ""
    package: str = ""
    extra: str = ""
    remedy: str = ""


_PICKLE = (
    "a pickle is code and is never loaded; convert it to ONNX: "
    "`modelyard init MODEL --from {file}` prints the script"
)
_SAVE_WHOLE = (
    "put the whole Hugging Face folder there (config.json, *.safetensors, tokenizer.json), or "
    "export the model: torch.export.save (model.pt2) or torch.onnx.export (model.onnx)"
)
_STATE = (
    "load the weights into the model's class and export it: torch.export.save (model.pt2) or "
    "torch.onnx.export (model.onnx)"
)
_FROM_SAFETENSORS = (
    "save it anew in its own environment with "
    "`AutoModel.from_pretrained(FOLDER).save_pretrained(FOLDER)`, which writes *.safetensors"
)

FORMATS: tuple[Format, ...] = (
    Format(".onnx", "an ONNX model", "onnxruntime", "model.onnx", "onnxruntime", "cpu"),
    Format(".pt2", "a PyTorch program (torch.export)", "pytorch", "model.pt2", "torch", "torch"),
    Format(".pt", "a TorchScript model", "pytorch", "model.pt", "torch", "torch"),
    Format(".py", "a Python model", "python", "model.py"),
    Format(
        ".xml",
        "an OpenVINO model (its weights in a .bin beside it)",
        "openvino",
        "model.xml",
        "openvino",
        "openvino",
    ),
    Format(".tflite", "a LiteRT model", "litert", "model.tflite", "ai_edge_litert", "litert"),
    Format(
        ".param",
        "an ncnn network (its weights in a .bin beside it)",
        "ncnn",
        "model.param",
        "ncnn",
        "ncnn",
    ),
    Format(".mnn", "an MNN model", "mnn", "model.mnn", "MNN", "mnn"),
    Format(".ubj", "an XGBoost model", "xgboost", "model.ubj", "xgboost", "trees"),
    Format(
        ".safetensors",
        "the weights of a model, in safetensors",
        "llm",
        "model.safetensors",
        "safetensors",
        "llm",
        "weights alone are no model; " + _SAVE_WHOLE,
    ),
    Format(".pkl", "a pickled Python object", package="sklearn", remedy=_PICKLE),
    Format(".pickle", "a pickled Python object", package="sklearn", remedy=_PICKLE),
    Format(".joblib", "a Python object pickled by joblib", package="sklearn", remedy=_PICKLE),
    Format(
        ".keras",
        "a Keras model",
        package="keras",
        remedy="export it: python -c \"import keras; keras.saving.load_model('{file}')"
        ".export('model.onnx', format='onnx')\"",
    ),
    Format(
        ".h5",
        "a Keras model (HDF5)",
        package="keras",
        remedy="export it: python -c \"import keras; keras.saving.load_model('{file}')"
        ".export('model.onnx', format='onnx')\"",
    ),
    Format(
        ".pb",
        "a TensorFlow graph",
        package="tensorflow",
        remedy="convert the SavedModel: "
        "python -m tf2onnx.convert --saved-model FOLDER --output model.onnx",
    ),
    Format(
        ".bin",
        "a file of weights (pytorch_model.bin, OpenVINO, ncnn, fastText)",
        remedy="if it is a Hugging Face checkpoint, " + _FROM_SAFETENSORS,
    ),
    Format(
        ".gguf",
        "a language model in GGUF",
        package="llama_cpp",
        remedy="give the whole checkpoint as the original is published: config.json, "
        "*.safetensors and tokenizer.json",
    ),
    Format(
        ".plan",
        "a TensorRT engine, built for one kind of GPU",
        package="tensorrt",
        remedy="put the ONNX model there that it was built from (model.onnx)",
    ),
    Format(
        ".engine",
        "a TensorRT engine, built for one kind of GPU",
        package="tensorrt",
        remedy="put the ONNX model there that it was built from (model.onnx)",
    ),
    Format(
        ".cbm",
        "a CatBoost model",
        package="catboost",
        remedy='convert it: python -c "import catboost; '
        "catboost.CatBoost().load_model('{file}').save_model('model.onnx', format='onnx')\"",
    ),
    Format(".pth", "PyTorch weights (torch.save)", package="torch", remedy=_STATE),
    Format(".ckpt", "a training checkpoint", package="torch", remedy=_STATE),
)

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_BY_SUFFIX = {one.suffix: one for one in FORMATS}


STRAY = frozenset(_BY_SUFFIX) - {".py", ".bin", ".param", ".xml", ".pb"}
"""Endings that only a model's file has: beside model folders such a file is a mistake."""


def format_of(name: str) -> Format | None:
    """The format of a file by its ending; None for one that is no model's."""
    return _BY_SUFFIX.get(PurePath(name).suffix.lower())


def placed(name: str, model: str = "") -> str:
    """Where a file belongs that lies beside model or version folders: the end of a sentence."""
    found = format_of(name)
    model = model or PurePath(name).stem
    if found is None or not found.file or found.remedy:
        return unserved_reason([name])
    return f"move '{name}' to '{model}/1/{found.file}'"


def installed(package: str) -> bool:
    """Whether Python would find a package here; imports nothing of it."""
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def unserved_reason(names: Iterable[str], has: Callable[[str], bool] = installed) -> str:
    """What a version folder with these files holds instead of something that a backend reads, and
    what would work; "" where none of them is known."""
    formats = [(name, found) for name in sorted(names) if (found := format_of(name))]
    if not formats:
        return ""
    name, found = min(formats, key=lambda one: FORMATS.index(one[1]))
    shown = name if len(name) <= 80 else name[:79] + "…"
    quoted = name if _PLAIN_NAME.fullmatch(name) else "FILE"  # of a command that people copy
    if found.backend and not found.remedy:
        return (
            f"{shown} is {found.what}, which is read under the name {found.file}; rename it to "
            f'{found.file}, or write default_model_filename: "{shown}" in config.pbtxt'
        )
    remedy = found.remedy.replace("{file}", quoted)
    return f"{shown} is {found.what}{_support(found, has)}; {remedy}"


def _support(found: Format, has: Callable[[str], bool]) -> str:
    if found.backend:
        return ""
    if found.package and has(found.package):
        return f", not supported yet (the package {found.package} is installed; no backend uses it)"
    return ", not supported yet"
