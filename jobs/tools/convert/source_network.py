"""A network to convert, in whatever runtime it has, and how its result is written."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tritonclient.grpc import model_config_pb2 as pb

from jobs.tools.networks.tensors import NetworkTensor, RowRunner, Rows

WriteResult = Callable[[Path], list[str]]
"""Writes the result's files into a folder; sentences that a reader of the report must know."""


class SourceNetwork(NamedTuple):
    """A conversion, ready to run.

    what: the format, in words. inputs: of the source. run: the source, whose outputs have the
    names of the result's. write: see `WriteResult`. open_result: the result, from its folder.
    config: of the result. extra: further rows to compare on, with their origin. packages: names
    of those that take part. nan: whether NaN is a missing value to the network.
    """

    what: str
    inputs: Sequence[NetworkTensor]
    run: RowRunner
    write: WriteResult
    open_result: Callable[[Path], RowRunner]
    config: pb.ModelConfig
    packages: tuple[str, ...]
    extra: Sequence[tuple[str, Rows]] = ()
    nan: bool = False
