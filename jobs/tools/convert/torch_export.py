"""ONNX files from torch modules, by either exporter, with open dimensions."""

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from jobs.tools.networks.files import FILE, first_line
from jobs.tools.networks.tensors import NetworkTensor, RowRunner, Rows
from jobs.tools.work import refuse

EXAMPLE_ROWS, EXAMPLE_SIZE = 2, 16
"""Of the example that is traced: with a single row the batch would become a constant."""

_BY_POSITION = re.compile(r".+__(\d+)")


class TorchNetwork(NamedTuple):
    """A torch module in evaluation mode: inputs in the order of its arguments, names of outputs.
    variadic: its `forward` takes them as one `*given`."""

    module: Any
    inputs: Sequence[NetworkTensor]
    outputs: Sequence[str]
    variadic: bool = False


class FlatOutputs(torch.nn.Module):
    """A module whose outputs come as a tuple, which the old exporter can trace."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """As the module's, flattened."""
        found = flat_outputs(self.module(*given))
        return tuple(found.values() if isinstance(found, Mapping) else found)


def in_order(inputs: Sequence[NetworkTensor], arguments: Sequence[str]) -> list[NetworkTensor]:
    """A config's inputs in the order of `forward`: by name, by INPUT__0, else as listed."""
    by_name = {one.name: one for one in inputs}
    if by_name.keys() <= set(arguments):
        return [by_name[name] for name in arguments if name in by_name]
    positions = [_BY_POSITION.fullmatch(one.name) for one in inputs]
    if all(positions):
        found = zip((int(one[1]) for one in positions if one), inputs, strict=True)
        return [tensor for _, tensor in sorted(found, key=lambda one: one[0])]
    return list(inputs)


def torch_runner(network: TorchNetwork) -> RowRunner:
    """Run the module on arrays. Refuses what it raises."""
    torch.set_num_threads(1)

    def run(rows: Rows) -> dict[str, Any]:
        given = [torch.from_numpy(np.ascontiguousarray(rows[one.name])) for one in network.inputs]
        try:
            with torch.no_grad():
                found = flat_outputs(network.module(*given))
        except Exception as error:  # noqa: BLE001 - a module raises what it likes
            refuse(f"the source does not run on rows like these: {first_line(error)}")
        names = network.outputs if not isinstance(found, Mapping) else list(found)
        if len(found) < len(network.outputs) or set(network.outputs) - set(names):
            there = f" ({', '.join(map(str, names))})" if isinstance(found, Mapping) else ""
            refuse(
                f"the source answers {len(found)} tensors{there}; its config lists "
                f"{', '.join(network.outputs)}"
            )
        values = found.values() if isinstance(found, Mapping) else found
        pairs = zip(names, values, strict=False)
        return {name: value.numpy() for name, value in pairs if name in network.outputs}

    return run


def flat_outputs(found: Any) -> Any:
    """What `forward` returned, as a mapping of tensors or a list of them."""
    if isinstance(found, torch.Tensor):
        return [found]
    if isinstance(found, Mapping):
        return {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}
    return [value for value in found if isinstance(value, torch.Tensor)]


def output_names(network: TorchNetwork, found: Any) -> list[str]:
    """Names of the outputs in the order in which an exporter sees them."""
    flat = flat_outputs(found)
    if isinstance(flat, Mapping):
        return list(flat)
    extra = [f"output_{index}" for index in range(len(network.outputs), len(flat))]
    return [*network.outputs, *extra]


def example_of(network: TorchNetwork) -> tuple[Any, ...]:
    """Tensors that the module is traced with."""
    from jobs.tools.inputs.made_up import made_up_rows

    rows = made_up_rows(network.inputs, EXAMPLE_ROWS, EXAMPLE_SIZE, seed=0)
    return tuple(torch.from_numpy(rows[one.name]) for one in network.inputs)


def export(
    network: TorchNetwork, example: tuple[Any, ...], folder: Path, orders: Sequence[str], what: str
) -> list[str]:
    """Write model.onnx by the first of the exporters that can; what was tried in vain."""
    with silenced(), torch.no_grad():
        names = output_names(network, network.module(*example))
    tried = []
    for name in orders:
        try:
            with silenced(), torch.no_grad():
                _EXPORTERS[name](network, example, folder / FILE, names)
        except Exception as error:  # noqa: BLE001 - exporters raise what a module provokes
            tried.append(f"the {name} exporter failed: {first_line(error)}")
        else:
            return tried
    return refuse(f"torch cannot export {what}: {'; '.join(tried)}")


def _by_dynamo(
    network: TorchNetwork, example: tuple[Any, ...], path: Path, names: list[str]
) -> None:
    shapes = tuple(
        {axis: torch.export.Dim.DYNAMIC for axis, size in enumerate(one.shape) if size is None}
        for one in network.inputs
    )
    torch.onnx.export(
        network.module, example, str(path), dynamo=True, external_data=False, verbose=False,
        input_names=[one.name for one in network.inputs], output_names=names,
        dynamic_shapes={"given": shapes} if network.variadic else shapes,
    )  # fmt: skip


def _by_tracing(
    network: TorchNetwork, example: tuple[Any, ...], path: Path, names: list[str]
) -> None:
    axes: dict[str, Any] = {
        one.name: {
            axis: "rows" if axis == 0 else f"size_{axis}"
            for axis, size in enumerate(one.shape)
            if size is None
        }
        for one in network.inputs
    }
    if any(axes.values()):
        axes |= {name: {0: "rows"} for name in names}
    torch.onnx.export(
        network.module, example, str(path), dynamo=False, opset_version=17,
        input_names=[one.name for one in network.inputs], output_names=names, dynamic_axes=axes,
    )  # fmt: skip


_EXPORTERS = {"dynamo": _by_dynamo, "torchscript": _by_tracing}


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Exporters report progress and what is not installed; none of it is the reader's."""
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
