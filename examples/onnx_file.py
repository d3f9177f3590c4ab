"""Writes a torch network as one self-contained ONNX file with a free batch dimension."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn


def export(network: nn.Module, sample: torch.Tensor, path: Path, names: tuple[str, str]) -> None:
    """Export a network of one input and one output, named `names`.

    `sample` is an input of at least two rows (a single row would be taken for a constant); its
    first dimension becomes the batch.
    """
    input_name, output_name = names
    with silenced():
        torch.onnx.export(
            network.eval(),
            (sample,),
            path,
            input_names=[input_name],
            output_names=[output_name],
            dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
            external_data=False,
            dynamo=True,
            verbose=False,
        )


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """The exporter reports its progress and what is not installed; none of it is the reader's."""
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
