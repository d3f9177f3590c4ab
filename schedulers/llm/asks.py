"""What a door may put into an InferRequest for a language model, and finds in the responses.

The values are Python objects, which no wire's parameter ever is; the scheduler looks at their type.
"""

from backends.llm.backend import EMBEDDING

__all__ = ["EMBED", "EMBEDDING", "GENERATE", "OUTPUT"]

GENERATE = "llm.generate"
"""request.parameters[GENERATE]: tuple[GenerateRequest, ...], one for each answer, with ids of their
own; the scheduler sets each one's principal, salt and deadline. The Reply ends when all have."""

OUTPUT = "llm.output"
"""response.parameters[OUTPUT]: (index of the request in the tuple, its Output)."""

EMBED = "llm.embed"
"""request.parameters[EMBED]: tuple[tuple[int, ...], ...], lists of tokens. One response, with the
output EMBEDDING."""
