"""Language models in a model repository, and how tests talk to a served one."""

import http.client
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from support.llm import byte_tokeniser, make_checkpoint, save_tokeniser
from support.server import Server

POSITIONS = 8192
"""Of these models: an answer of so many tokens takes seconds."""
GREEDY = {"temperature": 0, "ignore_eos": True}


def parameters(**settings: object) -> str:
    """As config.pbtxt writes them."""
    return "".join(
        f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}\n'
        for name, value in settings.items()
    )


def write_language_model(
    root: Path, name: str, config: str = "", version: int = 1, **changes: Any
) -> Any:
    """A random model of 2 layers below `root`, in float32; the transformers model itself."""
    folder = root / name / str(version)
    folder.mkdir(parents=True)
    model = make_checkpoint("llama", folder, **({"max_position_embeddings": POSITIONS} | changes))
    save_tokeniser(folder)
    if config:
        (root / name / "config.pbtxt").write_text(f'backend: "llm"\n{config}\n')
    return model


def generated(model: Any, prompt: str, count: int) -> str:
    """What transformers answers greedily, without an end."""
    tokeniser = byte_tokeniser()
    tokens = tokeniser.encode(prompt)
    with torch.inference_mode():
        whole = model.generate(
            torch.tensor([tokens]), do_sample=False, max_new_tokens=count, min_new_tokens=count
        )[0]
    return tokeniser.decode(whole[len(tokens) :].tolist())


def generate(server: Server, model: str, prompt: str, **asked: Any) -> tuple[int, dict[str, Any]]:
    """(status, document) of the generate verb; the answer alone, unless asked otherwise."""
    body = {"text_input": prompt, "exclude_input_in_output": True, **asked}
    status, answer = server.post(f"/v2/models/{model}/generate", body)
    return status, json.loads(answer)


@contextmanager
def asking(
    server: Server, model: str, prompt: str, **asked: Any
) -> Iterator[http.client.HTTPConnection]:
    """A connection that has asked for a stream of events; leaving the block hangs up."""
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    try:
        body = json.dumps({"text_input": prompt, "stream": True, **asked})
        connection.request("POST", f"/v2/models/{model}/generate_stream", body)
        yield connection
    finally:
        connection.close()


@contextmanager
def streaming(
    server: Server, model: str, prompt: str, **asked: Any
) -> Iterator[tuple[http.client.HTTPResponse, Iterator[dict[str, Any]]]]:
    """The response to that, which comes with the first event, and its events."""
    with asking(server, model, prompt, **asked) as connection:
        response = connection.getresponse()
        yield response, _events(response)


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    for line in response:
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


def figure(server: Server, name: str, model: str) -> float:
    """One of the model's metrics; 0 before there is any."""
    _, text = server.get("/metrics", server.metrics_port)
    found = re.search(rf'^modelyard_llm_{name}{{model="{model}".*}} (.+)$', text.decode(), re.M)
    return float(found[1]) if found else 0.0


def engine_pids(server: Server, model: str) -> list[int]:
    """The processes that compute the model."""
    return server.children(f"modelyard engine {model}_")


def engine_pid(server: Server, model: str) -> int:
    """The only one."""
    (pid,) = engine_pids(server, model)
    return pid
