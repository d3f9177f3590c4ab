"""The four sources, each in the format that such models come in, with the rows of its data file."""

import sys
import warnings
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from benchmarks import mobilenet
from benchmarks.jobs import resnet, rows, training
from benchmarks.jobs.resnet import resnet_18
from benchmarks.jobs.rows import (
    LENGTH,
    SIZE,
    TOPICS,
    VOCABULARY,
    Array,
    digit_pictures,
    digit_tables,
    topic_texts,
)
from benchmarks.jobs.training import TrainingPlan, train_classifier

TABLE = """\
max_batch_size: 64
input { name: "PIXELS" data_type: TYPE_FP32 dims: [ 64 ] }
output { name: "SCORES" data_type: TYPE_FP32 dims: [ 10 ] }
"""
ROUNDS = 20
BERT_WIDTH, BERT_LAYERS = 256, 4
RESNET = TrainingPlan(epochs=1, learning_rate=2e-3, quarter_size=3)
MOBILENET = TrainingPlan(epochs=5, learning_rate=2e-3, batch=16)
BERT = TrainingPlan(epochs=2, learning_rate=1e-3)


def write_resnet(folder: Path) -> dict[str, Array]:
    """ResNet-18 as TorchScript."""
    given = digit_pictures()
    network = resnet_18(classes=10)
    train_classifier(network, given.fitted, given.fitted_labels, RESNET)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(network, torch.zeros(2, 3, SIZE, SIZE))  # type: ignore[no-untyped-call]
        torch.jit.save(traced, folder / "model.pt")
    (folder / "config.pbtxt").write_text(_pictures(10))
    return {"IMAGE": given.given, "labels": given.given_labels}


def write_mobilenet(folder: Path) -> dict[str, Array]:
    """MobileNetV2 with all of its 1,000 classes, of which digits are ten, as a program of
    torch.export."""
    given = digit_pictures()
    network = mobilenet.mobilenet_v2()
    train_classifier(network, given.fitted, given.fitted_labels, MOBILENET)
    dynamic = ({0: torch.export.Dim("rows", min=1, max=64)},)
    program = torch.export.export(network, (torch.zeros(2, 3, SIZE, SIZE),), dynamic_shapes=dynamic)
    torch.export.save(program, folder / "model.pt2")
    (folder / "config.pbtxt").write_text(_pictures(mobilenet.CLASSES))
    return {"IMAGE": given.given, "labels": given.given_labels}


def write_bert(folder: Path) -> dict[str, Array]:
    """A BERT of 4 layers, 256 wide, as a Hugging Face folder."""
    from transformers import BertConfig, BertForSequenceClassification

    given = topic_texts()
    config = cast(Any, BertConfig)(
        vocab_size=VOCABULARY, hidden_size=BERT_WIDTH, num_hidden_layers=BERT_LAYERS,
        num_attention_heads=4, intermediate_size=4 * BERT_WIDTH, num_labels=TOPICS,
        max_position_embeddings=128,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = cast(Any, BertForSequenceClassification(config))
    train_classifier(model, given.fitted, given.fitted_labels, BERT)
    model.save_pretrained(folder)
    (folder / "config.pbtxt").write_text("max_batch_size: 64\n")
    ones = np.ones((len(given.given), LENGTH), np.int64)
    return {
        "input_ids": given.given, "attention_mask": ones, "token_type_ids": 0 * ones,
        "labels": given.given_labels,
    }  # fmt: skip


def write_boosting(folder: Path) -> dict[str, Array]:
    """Gradient boosting of ten classes by XGBoost."""
    import xgboost

    given = digit_tables()
    parameters = {"objective": "multi:softprob", "num_class": 10}
    trained = xgboost.train(parameters, xgboost.DMatrix(given.fitted, given.fitted_labels), ROUNDS)
    trained.save_model(folder / "model.json")
    (folder / "config.pbtxt").write_text(TABLE)
    return {"PIXELS": given.given, "labels": given.given_labels}


WRITERS: dict[str, Callable[[Path], dict[str, Array]]] = {
    "resnet": write_resnet,
    "mobilenet": write_mobilenet,
    "bert": write_bert,
    "boosting": write_boosting,
}


def write_source(name: str, cache: Path) -> tuple[Path, Path]:
    """The folder of a source and its data file; made once for each state of the code that makes
    them, which takes minutes."""
    folder = cache / f"{name}-{_digest()}"
    data = folder.with_suffix(".npz")
    if not data.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(data, **cast(Any, WRITERS[name](folder)))
    return folder, data


def _pictures(classes: int) -> str:
    return f"""\
max_batch_size: 64
input {{ name: "IMAGE" data_type: TYPE_FP32 dims: [ 3, {SIZE}, {SIZE} ] }}
output {{ name: "LOGITS" data_type: TYPE_FP32 dims: [ {classes} ] }}
"""


def _digest() -> str:
    """Of the code that makes sources, and of torch."""
    modules = (rows, resnet, mobilenet, training, sys.modules[__name__])
    found = sha256(torch.__version__.encode())
    for module in modules:
        found.update(Path(str(module.__file__)).read_bytes())
    return found.hexdigest()[:12]
