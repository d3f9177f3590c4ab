"""The command line every example's `call.py` shares: where the server listens."""

import argparse
import sys
from collections.abc import Callable
from typing import NamedTuple

from tritonclient.utils import InferenceServerException

_ADVICE = "start one with `modelyard serve`, or say where it is with --http and --grpc"


class Addresses(NamedTuple):
    """HOST:PORT of the server's two listeners, and the version to ask for ("" for the newest)."""

    http: str
    grpc: str
    version: str


def run(main: Callable[[], None]) -> None:
    """Run an example's `main`; where no server answers or it refuses, a sentence says so."""
    try:
        main()
    except OSError as error:
        sys.exit(f"no server answers: {error}; {_ADVICE}")
    except InferenceServerException as error:
        if "failed to connect" in str(error):
            sys.exit(f"no server answers: {error}; {_ADVICE}")
        sys.exit(f"the server refused: {error}")


def parser_for(description: str | None) -> argparse.ArgumentParser:
    """A parser with the shared options; the example adds its own."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--http", default="127.0.0.1:8000", help="HOST:PORT of the REST listener")
    parser.add_argument("--grpc", default="127.0.0.1:8001", help="HOST:PORT of the gRPC listener")
    parser.add_argument("--version", default="", help="model version; the highest ready by default")
    return parser


def addresses_in(arguments: argparse.Namespace) -> Addresses:
    """The shared options as given."""
    return Addresses(arguments.http, arguments.grpc, arguments.version)
