"""Embeddings: what is asked for, and how vectors are written. Pure."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from repository.config.tensors import Array
from server.openai.completions import Prompt, read_prompts
from server.openai.request_fields import RequestFields

_NOT_OFFERED: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("dimensions", ()),
    ("truncate_prompt_tokens", ()),
    ("normalize", ()),
    ("priority", (0,)),
)


@dataclass(frozen=True, slots=True)
class EmbeddingsRequest:
    """`base64`: vectors as their little-endian bytes instead of lists of numbers."""

    inputs: tuple[Prompt, ...]
    base64: bool
    special: bool


def read_embedding(fields: RequestFields) -> EmbeddingsRequest:
    """Raises BadField."""
    fields.pass_over(("model", "user"))
    for name, neutral in _NOT_OFFERED:
        fields.only(name, *neutral)
    inputs = read_prompts(fields, "input")
    form = fields.take("encoding_format")
    if form not in (None, "float", "base64"):
        raise fields.refused("encoding_format", form, "'float' or 'base64'")
    special = fields.flag("add_special_tokens", True)
    fields.finish()
    return EmbeddingsRequest(inputs, form == "base64", special)


def embedded(
    vectors: Array, asked: EmbeddingsRequest, model: str, tokens: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """The document of one vector for each list of tokens."""
    data = [
        {"object": "embedding", "index": index, "embedding": _written(vector, asked.base64)}
        for index, vector in enumerate(np.ascontiguousarray(vectors, dtype="<f4"))
    ]
    count = sum(map(len, tokens))
    counts = {"prompt_tokens": count, "total_tokens": count}
    return {"object": "list", "data": data, "model": model, "usage": counts}


def _written(vector: Array, base64: bool) -> Any:
    return b64encode(vector.tobytes()).decode() if base64 else vector.tolist()
