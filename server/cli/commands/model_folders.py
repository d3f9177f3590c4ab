"""`modelyard init`: its row; what it does is imported when it is asked for."""

import argparse

from server.cli.commands.client import ApiClient
from server.cli.commands.command import CliCommand, argument, whole
from server.cli.commands.output import Shown


def init(given: argparse.Namespace, api: ApiClient) -> Shown:
    from server.cli.commands.init.command import init as make

    return make(given, api)


COMMANDS = (
    CliCommand(
        "init",
        "make a model folder from a model's file, with a commented config",
        init,
        (
            argument("DIR", "The folder to make; its name is the model's, e.g. models/mine."),
            argument(
                "--from",
                "The model: .onnx, .pt2, .pt (TorchScript), .py with a TritonPythonModel, a "
                "Hugging Face folder, or .pkl and .joblib to be converted.",
                dest="artefact",
                metavar="ARTEFACT",
            ),
            argument(
                "--input",
                "An input as NAME:TYPE:DIMS, where the file does not record it; repeat it.",
                action="append",
            ),
            argument("--output", "An output, likewise.", action="append"),
            argument("--max-batch-size", "Most rows of a batch; 0 for no batches.", type=whole),
            argument(
                "--convert",
                "Convert a pickle to ONNX, which runs the code in it, with --python.",
                action="store_true",
            ),
            argument("--python", "The Python of the environment that converts, by its path."),
        ),
        local=True,
    ),
)
