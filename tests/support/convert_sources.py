"""Source folders of conversions: one network in each format that can be converted."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

ROUNDS = 20
IMAGES = """\
name: "images"
max_batch_size: 16
input { name: "IMAGE" data_type: TYPE_FP32 dims: [ 3, 64, 64 ] }
output { name: "SCORES" data_type: TYPE_FP32 dims: [ 100 ] }
"""
NAME_ONLY = 'name: "model"\n'
TREES = """\
name: "trees"
max_batch_size: 64
input { name: "FEATURES" data_type: TYPE_FP32 dims: [ %d ] }
output { name: "SCORES" data_type: %s dims: [ %d ] }
"""
TABLES: dict[str, Callable[..., Any]] = {
    "digits": load_digits, "cancer": load_breast_cancer, "diabetes": load_diabetes,
}  # fmt: skip


def table(name: str) -> tuple[Any, Any]:
    """Rows FP32 [n, features] of a data set of scikit-learn, and what they are."""
    rows, targets = TABLES[name](return_X_y=True)
    return rows.astype(np.float32), targets


def torchscript_source(folder: Path) -> Path:
    """The CNN of the example `one_network`, traced."""
    import torch

    from examples.one_network.network import network

    _start(folder, IMAGES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(network(), torch.zeros(2, 3, 64, 64))  # type: ignore[no-untyped-call]
        torch.jit.save(traced, folder / "model.pt")  # type: ignore[no-untyped-call]
    return folder


def program_source(folder: Path) -> Path:
    """The same network as a program of torch.export."""
    from examples.one_network.formats import write_pytorch

    _start(folder, IMAGES)
    write_pytorch(folder)
    return folder


def onnx_source(folder: Path) -> Path:
    """The same network in ONNX."""
    from examples.one_network.formats import write_onnx

    _start(folder, IMAGES)
    write_onnx(folder)
    return folder


def xgboost_source(folder: Path, data: str, **parameters: Any) -> Path:
    """Boosted trees of XGBoost for a data set."""
    import xgboost

    rows, targets = table(data)
    trained = xgboost.train(parameters, xgboost.DMatrix(rows, targets), ROUNDS)
    columns = np.asarray(trained.inplace_predict(rows[:2])).reshape(2, -1).shape[1]
    _start(folder, TREES % (rows.shape[1], "TYPE_FP32", columns))
    trained.save_model(folder / "model.json")
    return folder


def lightgbm_source(folder: Path, data: str, **parameters: Any) -> Path:
    """Boosted trees of LightGBM for a data set."""
    import lightgbm

    rows, targets = table(data)
    trained = lightgbm.train(parameters | {"verbose": -1}, lightgbm.Dataset(rows, targets), ROUNDS)
    columns = np.asarray(trained.predict(rows[:2])).reshape(2, -1).shape[1]
    _start(folder, TREES % (rows.shape[1], "TYPE_FP64", columns))
    trained.save_model(folder / "model.txt")
    return folder


def scikit_source(folder: Path, estimator: Any, data: str) -> Path:
    """A fitted estimator, pickled."""
    rows, targets = table(data)
    _start(folder, NAME_ONLY)
    joblib.dump(estimator.fit(rows, targets), folder / "model.joblib")
    return folder


def encoder_source(folder: Path, *, width: int = 32, layers: int = 2, heads: bool = True) -> Path:
    """A small BERT with random weights, as transformers saves it."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertModel

    _start(folder, NAME_ONLY)
    config = BertConfig(
        vocab_size=500, hidden_size=width, num_hidden_layers=layers, num_attention_heads=4,
        intermediate_size=4 * width, max_position_embeddings=128, num_labels=3,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        kind = BertForSequenceClassification if heads else BertModel
        kind(config).save_pretrained(folder)
    return folder


def set_checkpoint_field(folder: Path, **fields: Any) -> Path:
    """Change fields of a checkpoint's config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    return folder


def _start(folder: Path, config: str) -> None:
    folder.mkdir(parents=True)
    (folder / "config.pbtxt").write_text(config)
