"""Small .tflite models for tests."""

from pathlib import Path

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from examples.one_network.tflite_file import TfliteOperator, TfliteTensor, save_tflite


def save_tflite_pairs(path: Path, signature: str = "serving_default") -> None:
    """a as X and b as Y, rows of two numbers."""
    tensors = [TfliteTensor(name, (-1, 2)) for name in "abXY"]
    tensors.append(TfliteTensor("zero", (1,), value=np.zeros(1)))
    operators = [_added(a, x) for a, x in ("aX", "bY")]
    save_tflite(path, tensors, operators, "ab", "XY", signature)


def _added(of: str, to: str) -> TfliteOperator:
    kind = schema.BuiltinOptions.AddOptions
    return TfliteOperator(
        schema.BuiltinOperator.ADD, (of, "zero"), (to,), schema.AddOptionsT(), kind
    )


def save_tflite_rows(path: Path) -> None:
    """Row X of a table of three as Y."""
    table = np.arange(3)[:, None] + np.array([[0.0, 0.5]])
    tensors = [
        TfliteTensor("X", (-1, 1), np.int64),
        TfliteTensor("Y", (-1, 1, 2)),
        TfliteTensor("table", (3, 2), value=table),
    ]
    gather = TfliteOperator(
        schema.BuiltinOperator.GATHER,
        ("table", "X"),
        ("Y",),
        schema.GatherOptionsT(),
        schema.BuiltinOptions.GatherOptions,
    )
    save_tflite(path, tensors, [gather], "X", "Y")
