"""The four sources, each in the format that such models come in, with the rows of its data file."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from benchmarks.jobs.fitting import fit_classifier, settle_statistics
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

PICTURES = f"""\
max_batch_size: 64
input {{ name: "IMAGE" data_type: TYPE_FP32 dims: [ 3, {SIZE}, {SIZE} ] }}
output {{ name: "LOGITS" data_type: TYPE_FP32 dims: [ 10 ] }}
"""
TABLE = """\
max_batch_size: 64
input { name: "PIXELS" data_type: TYPE_FP32 dims: [ 64 ] }
output { name: "SCORES" data_type: TYPE_FP32 dims: [ 10 ] }
"""
ROUNDS = 20
BERT_WIDTH, BERT_LAYERS = 256, 4


def write_resnet(folder: Path) -> dict[str, Array]:
    """ResNet-18 as TorchScript."""
    rows = digit_pictures()
    network = resnet_18(classes=10)
    settle_statistics(network, rows.fitted)
    _fit_last(network, rows.fitted, rows.fitted_labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(network, torch.zeros(2, 3, SIZE, SIZE))  # type: ignore[no-untyped-call]
        torch.jit.save(traced, folder / "model.pt")
    (folder / "config.pbtxt").write_text(PICTURES)
    return {"IMAGE": rows.given, "labels": rows.given_labels}


def write_mobilenet(folder: Path) -> dict[str, Array]:
    """MobileNetV2 as a program of torch.export."""
    from benchmarks.mobilenet import LAST, mobilenet_v2

    rows = digit_pictures()
    network = cast(nn.Sequential, mobilenet_v2())
    network[-1] = nn.Linear(LAST, 10)
    settle_statistics(network, rows.fitted)
    _fit_last(network, rows.fitted, rows.fitted_labels)
    dynamic = ({0: torch.export.Dim("rows", min=1, max=64)},)
    program = torch.export.export(network, (torch.zeros(2, 3, SIZE, SIZE),), dynamic_shapes=dynamic)
    torch.export.save(program, folder / "model.pt2")
    (folder / "config.pbtxt").write_text(PICTURES)
    return {"IMAGE": rows.given, "labels": rows.given_labels}


def write_bert(folder: Path) -> dict[str, Array]:
    """A BERT of 4 layers, 256 wide, as a Hugging Face folder."""
    from transformers import BertConfig, BertForSequenceClassification

    rows = topic_texts()
    config = cast(Any, BertConfig)(
        vocab_size=VOCABULARY, hidden_size=BERT_WIDTH, num_hidden_layers=BERT_LAYERS,
        num_attention_heads=4, intermediate_size=4 * BERT_WIDTH, num_labels=TOPICS,
        max_position_embeddings=128, initializer_range=0.1,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = cast(Any, BertForSequenceClassification(config)).eval()
    fit_classifier(
        model.classifier, lambda ids: model.bert(ids).pooler_output, rows.fitted,
        rows.fitted_labels,
    )  # fmt: skip
    model.save_pretrained(folder)
    (folder / "config.pbtxt").write_text("max_batch_size: 64\n")
    ones = np.ones((len(rows.given), LENGTH), np.int64)
    return {
        "input_ids": rows.given, "attention_mask": ones, "token_type_ids": 0 * ones,
        "labels": rows.given_labels,
    }  # fmt: skip


def write_boosting(folder: Path) -> dict[str, Array]:
    """Gradient boosting of ten classes by XGBoost."""
    import xgboost

    rows = digit_tables()
    parameters = {"objective": "multi:softprob", "num_class": 10}
    trained = xgboost.train(parameters, xgboost.DMatrix(rows.fitted, rows.fitted_labels), ROUNDS)
    trained.save_model(folder / "model.json")
    (folder / "config.pbtxt").write_text(TABLE)
    return {"PIXELS": rows.given, "labels": rows.given_labels}


WRITERS: dict[str, Callable[[Path], dict[str, Array]]] = {
    "resnet": write_resnet,
    "mobilenet": write_mobilenet,
    "bert": write_bert,
    "boosting": write_boosting,
}


def write_source(name: str, folder: Path) -> Path:
    """Write a source and, beside its folder, its data file, unless both are there; that file."""
    data = folder.with_suffix(".npz")
    if not data.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(data, **cast(Any, WRITERS[name](folder)))
    return data


def _fit_last(network: nn.Sequential, rows: Array, labels: Array) -> None:
    fit_classifier(cast(nn.Linear, network[-1]), network[:-1], rows, labels)
