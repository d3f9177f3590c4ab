"""The same request as a command and as a program, to copy. Pure."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

LONGEST = 4_000
"""Characters of data in what is copied; more stands in a file of its own."""

_TYPES = {
    "BOOL": "np.bool_", "INT8": "np.int8", "INT16": "np.int16", "INT32": "np.int32",
    "INT64": "np.int64", "UINT8": "np.uint8", "UINT16": "np.uint16", "UINT32": "np.uint32",
    "UINT64": "np.uint64", "FP16": "np.float16", "FP32": "np.float32", "FP64": "np.float64",
    "BYTES": "np.object_",
}  # fmt: skip


def curl(url: str, body: Mapping[str, Any]) -> str:
    text = json.dumps(body)
    data = shlex.quote(text) if len(text) <= LONGEST else "@request.json"
    head = f"curl -s {shlex.quote(url)} -H 'Content-Type: application/json'"
    return f"{head} \\\n  -d {data}"


def python_client(host: str, model: str, tail: str, body: Mapping[str, Any]) -> str:
    """For tritonclient[http]."""
    version = tail.removeprefix("/versions/")
    lines = [
        "import numpy as np",
        "import tritonclient.http as triton",
        "",
        f"client = triton.InferenceServerClient({host!r})",
        "inputs = []",
    ]
    for one in body.get("inputs") or ():
        lines += _tensor(one) if isinstance(one, Mapping) else []
    asked = f"{model!r}, inputs" + (f", model_version={version!r}" if version else "")
    lines += [f"answer = client.infer({asked})", "print(answer.get_response())"]
    lines += [f"print(answer.as_numpy({name!r}))" for name in _outputs(body)]
    return "\n".join(lines)


def talk(url: str, model: str) -> dict[str, str]:
    """A conversation from programs."""
    said = [{"role": "user", "content": "Hello"}]
    body = {"model": model, "messages": said, "temperature": 0.7, "max_tokens": 256}
    asked = f"curl -sN {shlex.quote(f'{url}/v1/chat/completions')}"
    data = shlex.quote(json.dumps({**body, "stream": True}))
    lines = [
        "from openai import OpenAI",
        "",
        f"client = OpenAI(base_url={f'{url}/v1'!r}, api_key='none')  # or a token",
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
        "curl": f"{asked} -H 'Content-Type: application/json' \\\n  -d {data}",
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
