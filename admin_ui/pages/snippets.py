"""The same request as a command and as a program, to copy. Pure."""

import json
import shlex
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from admin_ui.pages.verbs import INFER, STREAM

LONGEST = 4_000
"""Characters of data in what is copied; more stands in a file of its own."""

_TYPES = {
    "BOOL": "np.bool_", "INT8": "np.int8", "INT16": "np.int16", "INT32": "np.int32",
    "INT64": "np.int64", "UINT8": "np.uint8", "UINT16": "np.uint16", "UINT32": "np.uint32",
    "UINT64": "np.uint64", "FP16": "np.float16", "FP32": "np.float32", "FP64": "np.float64",
    "BYTES": "np.object_",
}  # fmt: skip


TOKEN = "MODELYARD_TOKEN"
"""The environment variable that a snippet takes the token from, where one is needed."""


def curl(url: str, body: Mapping[str, Any], token: bool = False, options: str = "-s") -> str:
    """`token`: the server answers nobody without one."""
    text = json.dumps(body)
    data = shlex.quote(text) if len(text) <= LONGEST else "@request.json"
    head = f"curl {options} {shlex.quote(url)} -H 'Content-Type: application/json'"
    if token:
        head += f' \\\n  -H "Authorization: Bearer ${TOKEN}"'
    return f"{head} \\\n  -d {data}"


def python_urllib(url: str, body: Mapping[str, Any], token: bool, events: bool) -> str:
    """For Python's standard library: `generate`, or with `events` `generate_stream`."""
    text = repr(body)
    request = "urllib.request.Request(url, json.dumps(body).encode(), headers)"
    lines = [
        "import json",
        *(["import os"] if token else []),
        "import urllib.request",
        "",
        f"url = {url!r}",
        f"body = {text}" if len(text) <= LONGEST else 'body = json.load(open("request.json"))',
        "headers = {'Content-Type': 'application/json'}",
        *([f"headers['Authorization'] = 'Bearer ' + os.environ[{TOKEN!r}]"] if token else []),
        f"with urllib.request.urlopen({request}) as answer:",
    ]
    if not events:
        return "\n".join([*lines, "    print(json.load(answer))"])
    read = ["    for line in answer:", "        if line.startswith(b'data:'):"]
    return "\n".join([*lines, *read, "            print(json.loads(line[5:]))"])


def programs(
    url: str, label: str, tail: str, verb: str, body: Mapping[str, Any], token: bool
) -> dict[str, Any]:
    """The same request as a command and as a program. Pure."""
    whole = f"{url}{infer_path(label, tail, verb)}"
    if verb == INFER:
        client = python_client(url.removeprefix("http://"), label, tail, body, token)
    else:
        client = python_urllib(whole, body, token, events=verb == STREAM)
    options = "-sN" if verb == STREAM else "-s"
    return {"curl": curl(whole, body, token, options), "client": client}


def infer_path(label: str, tail: str, verb: str) -> str:
    return f"/v2/models/{quote(label, safe='@')}{tail}/{verb}"


def python_client(
    host: str, model: str, tail: str, body: Mapping[str, Any], token: bool = False
) -> str:
    """For tritonclient[http]."""
    version = tail.removeprefix("/versions/")
    lines = [
        *(["import os", ""] if token else []),
        "import numpy as np",
        "import tritonclient.http as triton",
        "",
        f"client = triton.InferenceServerClient({host!r})",
        "inputs = []",
    ]
    for one in body.get("inputs") or ():
        lines += _tensor(one) if isinstance(one, Mapping) else []
    asked = f"{model!r}, inputs" + (f", model_version={version!r}" if version else "")
    if token:
        lines.append(f"headers = {{'Authorization': 'Bearer ' + os.environ[{TOKEN!r}]}}")
        asked += ", headers=headers"
    lines += [f"answer = client.infer({asked})", "print(answer.get_response())"]
    lines += [f"print(answer.as_numpy({name!r}))" for name in _outputs(body)]
    return "\n".join(lines)


def talk(url: str, model: str, token: bool = False) -> dict[str, str]:
    """A conversation from programs."""
    said = [{"role": "user", "content": "Hello"}]
    body = {"model": model, "messages": said, "temperature": 0.7, "max_tokens": 256}
    key = f"os.environ[{TOKEN!r}]" if token else "'none'"
    lines = [
        *(["import os", ""] if token else []),
        "from openai import OpenAI",
        "",
        f"client = OpenAI(base_url={f'{url}/v1'!r}, api_key={key})",
        "answer = client.chat.completions.create(",
        f"    model={model!r},",
        f"    messages={said!r},",
        "    temperature=0.7,",
        "    max_tokens=256,",
        "    stream=True,",
        ")",
        "for piece in answer:",
        '    print(piece.choices[0].delta.content or "", end="", flush=True)',
    ]
    return {
        "curl": curl(f"{url}/v1/chat/completions", {**body, "stream": True}, token, "-sN"),
        "client": "\n".join(lines),
    }


def complete(url: str, model: str, token: bool = False) -> dict[str, str]:
    """A text that goes on, for a model without a chat template."""
    body = {"model": model, "prompt": "Once upon a time", "temperature": 0.7, "max_tokens": 64}
    key = f"os.environ[{TOKEN!r}]" if token else "'none'"
    lines = [
        *(["import os", ""] if token else []),
        "from openai import OpenAI",
        "",
        f"client = OpenAI(base_url={f'{url}/v1'!r}, api_key={key})",
        "answer = client.completions.create(",
        f"    model={model!r},",
        f"    prompt={body['prompt']!r},",
        "    temperature=0.7,",
        "    max_tokens=64,",
        "    stream=True,",
        ")",
        "for piece in answer:",
        '    print(piece.choices[0].text, end="", flush=True)',
    ]
    return {
        "curl": curl(f"{url}/v1/completions", {**body, "stream": True}, token, "-sN"),
        "client": "\n".join(lines),
    }


def _tensor(one: Mapping[str, Any]) -> list[str]:
    name, datatype, shape = (one.get(key) for key in ("name", "datatype", "shape"))
    kind = _TYPES.get(str(datatype), "np.float32")
    data = repr(one.get("data"))
    values = (
        f"np.array({data}, {kind}).reshape({shape!r})"
        if len(data) <= LONGEST
        else f"np.zeros({shape!r}, {kind})  # put your data here"
    )
    made = f"triton.InferInput({name!r}, {shape!r}, {datatype!r})"
    return [f"inputs.append({made})", f"inputs[-1].set_data_from_numpy({values})"]


def _outputs(body: Mapping[str, Any]) -> list[str]:
    return [str(one.get("name")) for one in body.get("outputs") or () if isinstance(one, Mapping)]
