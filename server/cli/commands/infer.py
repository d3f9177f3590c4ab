"""`modelyard infer`: one request to a model over REST, or what it takes."""

import argparse
import json
import shlex
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any
from urllib.parse import quote

from server.cli.commands.client import ApiClient
from server.cli.commands.command import CliCommand, CommandFailed, argument, whole
from server.cli.commands.infer_body import IMAGES, body_of
from server.cli.commands.output import MessageOutput, Shown, plain
from server.cli.commands.rest_client import call, default_url
from server.cli.commands.secret_input import read_token

_MOST_SHOWN = 16
_LONGEST_LINE = 400
_TEXT = "text_input"
"""The input of language models."""


def infer(given: argparse.Namespace, _: ApiClient) -> Shown:
    """Without data, what the model takes and a request to try."""
    url, token = given.rest or default_url(), read_token(given.token_file)
    path = f"/v2/models/{quote(given.MODEL, safe='@')}"
    if given.version is not None:
        path += f"/versions/{given.version}"
    described = call(url, path, token=token)
    inputs = described.get("inputs", [])
    is_language_model = any(one["name"] == _TEXT for one in inputs)
    if given.data is None:
        return _description(given.MODEL, described, is_language_model)
    if is_language_model and (body := _generation(given.data)) is not None:
        answer = call(url, f"{path}/generate", body, token)
        text = str(answer.get("text_output", answer))
        return MessageOutput("\n".join(map(plain, text.splitlines())), answer)
    answer = call(url, f"{path}/infer", body_of(given.data, inputs), token)
    return MessageOutput("\n".join(map(_output_text, answer.get("outputs", []))), answer)


def _generation(data: str) -> dict[str, Any] | None:
    """The body of the generate verb: text, or an object of its own; None for a body of infer."""
    if data.startswith("@"):
        raise CommandFailed("a language model takes its text with -d, e.g. -d 'Hello'")
    try:
        document = json.loads(data)
    except ValueError:
        document = data
    if isinstance(document, dict):
        return None if "inputs" in document else document
    return {_TEXT: str(document), "exclude_input_in_output": True}


def _description(name: str, described: Mapping[str, Any], is_language_model: bool) -> Shown:
    lines = [f"{name}: versions {', '.join(described.get('versions', [])) or 'none'}"]
    for kind in ("inputs", "outputs"):
        lines += [f"  {kind[:-1]:<7}{_signature(one)}" for one in described.get(kind, [])]
    sample = "Hello" if is_language_model else json.dumps(_sample(described.get("inputs", [])))
    shown = f"modelyard infer {shlex.quote(name)} -d "
    if len(sample) > _LONGEST_LINE:
        lines.append(f"to try it: {shown}@FILE with JSON such as {sample[:60]}…")
        if any(len(one["shape"]) >= 3 for one in described["inputs"]):
            lines.append(f"or with an image ({', '.join(IMAGES)}): {shown}@IMAGE")
    else:
        lines.append(f"to try it: {shown}{shlex.quote(sample)}")
    return MessageOutput("\n".join(lines), {**described, "sample": sample})


def _sample(inputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The smallest values of the right shapes; optional inputs cannot be told from here."""
    return {one["name"]: _zeros(one) for one in inputs}


def _zeros(one: Mapping[str, Any]) -> Any:
    value: Any = {"BYTES": "text", "BOOL": False}.get(one["datatype"], 0)
    for size in reversed(one["shape"]):
        value = [value] * max(size, 1)
    return value


def _signature(one: Mapping[str, Any]) -> str:
    return f"{one['name']} {one['datatype']} [{','.join(map(str, one['shape']))}]"


def _output_text(one: Mapping[str, Any]) -> str:
    data = one.get("data", [])
    values = ", ".join(plain(_value(value)) for value in data[:_MOST_SHOWN])
    more = f", … {prod(one['shape'])} in all" if len(data) > _MOST_SHOWN else ""
    return f"{_signature(one)}: {values}{more}"


def _value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


COMMANDS = (
    CliCommand(
        "infer",
        "send one request to a model; without data, show what it takes",
        infer,
        (
            argument("MODEL", "The model's name, also MODEL@ALIAS or a route's."),
            argument(
                "--data",
                "JSON (a body, or input names with values), @FILE of JSON, or an image.",
                metavar="DATA",
                short="-d",
            ),
            argument("--version", "This version; the server chooses if not given.", type=whole),
            argument("--rest", "The REST port as a URL. [http://127.0.0.1:8000, or as set here]"),
            argument(
                "--token-file",
                "File with the token on its first line; - for stdin. [the variable "
                "MODELYARD_TOKEN]",
            ),
        ),
        local=True,
    ),
)
