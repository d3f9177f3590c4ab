"""Embeddings: what is asked for, and how vectors are written. Pure."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from repository.config.tensors import Array
from server.openai.bodies.completions import Prompt, Prompts, read_prompts
from server.openai.bodies.options import ModelName
from server.openai.bodies.request_fields import (
    NotOffered,
    OpenAIBody,
    not_offered,
    read_body,
    wanted,
)


class EmbeddingBody(OpenAIBody, frozen=True):
    """Texts or tokens whose vectors are asked for; `base64` has them as little-endian bytes."""

    model: ModelName
    input: Prompts
    encoding_format: Annotated[Literal["float", "base64"], wanted("'float' or 'base64'")] | None = (
        None
    )
    add_special_tokens: bool | None = None
    user: Any = None

    dimensions: NotOffered = None
    truncate_prompt_tokens: NotOffered = None
    normalize: NotOffered = None
    priority: Annotated[Literal[0], not_offered()] | None = None


class EmbeddingUsage(msgspec.Struct, frozen=True):
    """Counts of tokens."""

    prompt_tokens: int
    total_tokens: int


class TextEmbedding(msgspec.Struct, frozen=True, kw_only=True):
    """The vector of one text; `embedding` is text where base64 was asked for."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingList(msgspec.Struct, frozen=True, kw_only=True):
    """Vectors, one for each text."""

    object: Literal["list"] = "list"
    data: list[TextEmbedding]
    model: str
    usage: EmbeddingUsage


@dataclass(frozen=True, slots=True)
class EmbeddingsRequest:
    """`base64`: vectors as their little-endian bytes instead of lists of numbers."""

    inputs: tuple[Prompt, ...]
    base64: bool
    special: bool


def read_embedding(document: dict[str, Any]) -> EmbeddingsRequest:
    """Raises BadField."""
    body = read_body(EmbeddingBody, document)
    inputs = read_prompts(body.input, "input")
    special = body.add_special_tokens is not False
    return EmbeddingsRequest(inputs, body.encoding_format == "base64", special)


def embedded(
    vectors: Array, request: EmbeddingsRequest, model: str, tokens: Sequence[Sequence[int]]
) -> EmbeddingList:
    """The document of one vector for each list of tokens."""
    data = [
        TextEmbedding(index=index, embedding=_written(vector, request.base64))
        for index, vector in enumerate(np.ascontiguousarray(vectors, dtype="<f4"))
    ]
    count = sum(map(len, tokens))
    return EmbeddingList(data=data, model=model, usage=EmbeddingUsage(count, count))


def _written(vector: Array, base64: bool) -> list[float] | str:
    return b64encode(vector.tobytes()).decode() if base64 else vector.tolist()
