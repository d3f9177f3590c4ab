"""OpenAI's API in the description of REST: its rows and its bodies.

A path of `server.openai.endpoints` without a row here fails a test. The bodies' fields are those
OpenAI documents; docs/openai.md says what becomes of each.
"""

from control.openapi_document import Schema, reference
from server.rest.openapi.paths import RestOperation
from server.rest.openapi.schemas import BOOLEAN, NATURAL, STRING, items, members

LANGUAGE = "Language models"
_ERRORS = (400, 404, 429, 500, 503)
_ADDED = "tokens to text, as vLLM offers it"

LANGUAGE_OPERATIONS: tuple[RestOperation, ...] = (
    *(
        RestOperation("POST", path, LANGUAGE, summary, gives, takes, _ERRORS, required_body=True)
        for path, summary, gives, takes in (
            ("/v1/chat/completions", "Answer a chat, whole or as events", "Answers", "ChatRequest"),
            (
                "/v1/completions",
                "Continue a text, whole or as events",
                "Answers",
                "CompletionRequest",
            ),
            ("/v1/embeddings", "Vectors of texts", "Embeddings", "EmbeddingRequest"),
            ("/v1/tokenize", "Text or chat to tokens, as vLLM offers it", "Tokens", "TextRequest"),
            ("/tokenize", "Text or chat to tokens, at vLLM's path", "Tokens", "TextRequest"),
            ("/v1/detokenize", f"From {_ADDED}", "Text", "TokensRequest"),
            ("/detokenize", "Tokens to text, at vLLM's path", "Text", "TokensRequest"),
        )
    ),
    RestOperation("GET", "/v1/models", LANGUAGE, "The models the caller may ask", "LanguageModels"),
    RestOperation(
        "GET", "/v1/models/{model}", LANGUAGE, "One of them", "LanguageModel", errors=(404,)
    ),
)

_NAME = {**STRING, "description": "A model, MODEL@ALIAS, or a route."}
_NUMBER: Schema = {"type": "number"}
_TOKENS = items(NATURAL)
_PROMPT: Schema = {
    "description": "A text or several, a list of tokens or several.",
    "type": ["string", "array"],
}
_OPTIONS: dict[str, Schema] = {
    "stream": BOOLEAN,
    "n": {**NATURAL, "maximum": 128},
    "temperature": _NUMBER,
    "top_p": _NUMBER,
    "max_tokens": NATURAL,
    "stop": {"type": ["string", "array"]},
    "seed": {"type": "integer"},
    "presence_penalty": _NUMBER,
    "frequency_penalty": _NUMBER,
    "logit_bias": {"type": "object", "additionalProperties": _NUMBER},
    "response_format": {"type": "object"},
}
_MESSAGE = members(
    "role", role={"enum": ["system", "developer", "user", "assistant", "tool"]}, content=STRING
)

LANGUAGE_SCHEMAS: dict[str, Schema] = {
    "OpenAIError": members(
        "error",
        error=members(
            "message type param code",
            message={**STRING, "description": "What happened, and why."},
            type=STRING,
            param={"type": ["string", "null"], "description": "The field that is wrong."},
            code={"type": ["string", "null"]},
        ),
    ),
    "ChatRequest": members(
        "model messages",
        model=_NAME,
        messages=items(_MESSAGE),
        logprobs=BOOLEAN,
        tools=items({"type": "object"}),
        tool_choice={"type": ["string", "object"]},
        parallel_tool_calls=BOOLEAN,
        **_OPTIONS,
    ),
    "CompletionRequest": members(
        "model prompt", model=_NAME, prompt=_PROMPT, echo=BOOLEAN, logprobs=NATURAL, **_OPTIONS
    ),
    "EmbeddingRequest": members(
        "model input", model=_NAME, input=_PROMPT, encoding_format={"enum": ["float", "base64"]}
    ),
    "TextRequest": members("model", model=_NAME, prompt=STRING, messages=items(_MESSAGE)),
    "TokensRequest": members("model tokens", model=_NAME, tokens=_TOKENS),
    "Answers": members(
        "id object created model choices",
        id=STRING,
        object={"enum": ["chat.completion", "text_completion"]},
        created=NATURAL,
        model=_NAME,
        choices=items({"type": "object"}),
        usage={"type": "object"},
    ),
    "Embeddings": members(
        "object data model usage",
        object={"const": "list"},
        data=items({"type": "object"}),
        model=_NAME,
        usage={"type": "object"},
    ),
    "Tokens": members(
        "count max_model_len tokens", count=NATURAL, max_model_len=NATURAL, tokens=_TOKENS
    ),
    "Text": members("prompt", prompt=STRING),
    "LanguageModels": members(
        "object data", object={"const": "list"}, data=items(reference("LanguageModel"))
    ),
    "LanguageModel": members(
        "id object created owned_by",
        id=_NAME,
        object={"const": "model"},
        created=NATURAL,
        owned_by=STRING,
        max_model_len=NATURAL,
        version=NATURAL,
    ),
}
