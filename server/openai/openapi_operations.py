"""OpenAI's API in the description of REST: its rows, and the Structs of its bodies.

A path of `server.openai.endpoints` without a row here fails a test. docs/openai.md says what
becomes of each field.
"""

from server.openai.answers.choice_encoders import (
    ChatCompletion,
    ChatCompletionChunk,
    TextCompletion,
)
from server.openai.bodies.chat import ChatBody, ConversationBody
from server.openai.bodies.completions import CompletionBody
from server.openai.bodies.embeddings import EmbeddingBody, EmbeddingList
from server.openai.listing import LanguageModel, LanguageModelList
from server.openai.tokens import DetokenizedText, TextBody, TokenizedText, TokensBody
from server.rest.openapi.paths import LANGUAGE, BodyType, RestOperation

_ERRORS = (400, 404, 429, 500, 503)
_ADDED = "tokens to text, as vLLM offers it"
_TEXTS: BodyType = (TextBody, ConversationBody)

LANGUAGE_OPERATIONS: tuple[RestOperation, ...] = (
    *(
        RestOperation(
            "POST",
            path,
            LANGUAGE,
            summary,
            gives,
            takes,
            _ERRORS,
            required_body=True,
            events=events,
        )
        for path, summary, takes, gives, events in (
            (
                "/v1/chat/completions",
                "Answer a chat, whole or as events",
                ChatBody,
                ChatCompletion,
                ChatCompletionChunk,
            ),
            (
                "/v1/completions",
                "Continue a text, whole or as events",
                CompletionBody,
                TextCompletion,
                TextCompletion,
            ),
            ("/v1/embeddings", "Vectors of texts", EmbeddingBody, EmbeddingList, None),
            (
                "/v1/tokenize",
                "Text or chat to tokens, as vLLM offers it",
                _TEXTS,
                TokenizedText,
                None,
            ),
            ("/tokenize", "Text or chat to tokens, at vLLM's path", _TEXTS, TokenizedText, None),
            ("/v1/detokenize", f"From {_ADDED}", TokensBody, DetokenizedText, None),
            (
                "/detokenize",
                "Tokens to text, at vLLM's path",
                TokensBody,
                DetokenizedText,
                None,
            ),
        )
    ),
    RestOperation(
        "GET", "/v1/models", LANGUAGE, "The models the caller may ask", LanguageModelList
    ),
    RestOperation(
        "GET", "/v1/models/{model}", LANGUAGE, "One of them", LanguageModel, errors=(404,)
    ),
)
